"""Talking to an MPS control daemon, through the program that NVIDIA ships for it.

The bytes between that program and the daemon are NVIDIA's own; what is documented is the
program's standard input, one command a line, and the files of the pipe directory.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.mps_evidence import PipeKind
from drivetrain_trainer.launcher.digest import plain_text
from drivetrain_trainer.launcher.mps.names import CONTROL, PIPE_DIRECTORY, PROGRAM
from drivetrain_trainer.launcher.processes import send

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ANSWER_SECONDS: Final = 5.0
"""How long the daemon may take to answer a command."""

_WORDS_LIMIT = 300
_ANSWER_LIMIT = 32 << 10
_LISTEN_SECONDS = 2.0


class MpsError(Exception):
    """MPS is not as it must be; the message says what to do."""


def find_program(environ: Mapping[str, str]) -> str | None:
    """Path of NVIDIA's control program; None where the image and the driver bring none."""
    return shutil.which(PROGRAM, path=environ.get("PATH", os.defpath))


@dataclass(frozen=True)
class ControlPipe:
    """The ``control`` of a pipe directory."""

    directory: Path

    @property
    def path(self) -> Path:
        """Its path."""
        return self.directory / CONTROL

    def kind(self) -> PipeKind:
        """A socket, or a named pipe with older drivers.

        Raises:
            MpsError: nothing is there, or something else.
        """
        try:
            mode = self.path.stat().st_mode
        except OSError as error:
            raise MpsError(f"{self.path}: {error.strerror}") from error
        if stat.S_ISSOCK(mode):
            return PipeKind.SOCKET
        if stat.S_ISFIFO(mode):
            return PipeKind.FIFO
        raise MpsError(f"{self.path} is neither a socket nor a named pipe")

    def check_listening(self) -> PipeKind:
        """That a daemon is at the other end; its kind.

        Raises:
            MpsError: nobody is, or we may not ask.
        """
        kind = self.kind()
        try:
            if kind is PipeKind.SOCKET:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                    probe.settimeout(_LISTEN_SECONDS)
                    probe.connect(os.fspath(self.path))
            else:
                os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ENXIO):
                raise MpsError(f"no daemon listens at {self.path}") from error
            words = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            raise MpsError(f"{self.path}: {words}") from error
        return kind


@dataclass(frozen=True)
class Control:
    """One daemon, as commands reach it."""

    program: str
    directory: Path
    environ: Mapping[str, str]

    def ask(self, command: str, seconds: float = ANSWER_SECONDS) -> str:
        """Send one command and wait for the answer; only while nobody else reaps children.

        Raises:
            MpsError: no answer in time, or the daemon refused.
        """
        query = self.start(command)
        ends = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(query.pid, os.WNOHANG)
            if pid:
                return query.answer(os.waitstatus_to_exitcode(status))
            if time.monotonic() >= ends:
                query.kill()
                os.waitpid(query.pid, 0)
                query.close()
                raise MpsError(f"{self.directory}: no answer to {command!r} within {seconds:.0f} s")
            time.sleep(0.01)

    def start(self, command: str) -> Query:
        """Send one command without waiting; whoever reaps the child takes the answer.

        Raises:
            MpsError: the program cannot be started.
        """
        reading, writing = os.pipe2(os.O_CLOEXEC)
        told, telling = os.pipe2(os.O_CLOEXEC)
        try:
            os.write(telling, f"{command}\n".encode("ascii"))
            process = subprocess.Popen(  # noqa: S603 - NVIDIA's program, found on PATH
                [self.program],
                env={**self.environ, PIPE_DIRECTORY: str(self.directory)},
                stdin=told,
                stdout=writing,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            os.close(reading)
            raise MpsError(f"{self.program} cannot be started: {error.strerror}") from error
        finally:
            for descriptor in (writing, told, telling):
                os.close(descriptor)
        process.returncode = 0  # reaped by us, or by the launcher's loop
        return Query(command, process.pid, reading)


@dataclass(frozen=True)
class Query:
    """A command on its way."""

    command: str
    pid: int
    output: int

    def answer(self, exit_code: int) -> str:
        """What the daemon said, once the child has ended.

        Raises:
            MpsError: it refused, or could not be reached.
        """
        try:
            os.set_blocking(self.output, False)
            said = os.read(self.output, _ANSWER_LIMIT).decode("utf-8", "replace").strip()
        except BlockingIOError:
            said = ""
        finally:
            self.close()
        if exit_code != 0:
            words = plain_text(said, _WORDS_LIMIT) or f"exit code {exit_code}"
            raise MpsError(f"{PROGRAM} refused {self.command!r}: {words}")
        return said

    def kill(self) -> None:
        """Do not wait for it any longer; its end is still to be reaped."""
        send(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of its output."""
        os.close(self.output)
