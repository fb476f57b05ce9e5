"""One MPS control daemon for one GPU: private folders, its start, its limits, its end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from drivetrain_api.labels import ENV_SCRATCH
from drivetrain_api.machine import VISIBLE
from drivetrain_trainer.launcher.digest import plain_text
from drivetrain_trainer.launcher.mps.control import Control, ControlPipe, MpsError
from drivetrain_trainer.launcher.mps.names import LOG_DIRECTORY, PIPE_DIRECTORY
from drivetrain_trainer.launcher.processes import send

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from drivetrain_trainer.launcher.mps.control import Query

log = structlog.get_logger(__name__)

START_SECONDS: Final = 20.0
"""How long a daemon may take until it answers."""
QUIT_SECONDS: Final = 1.0
"""What all daemons together get to end by themselves: the grace period is nearly over then."""
KILL_SECONDS: Final = 0.5
"""What a killed daemon gets to be gone."""
LONGEST_DIRECTORY: Final = 80
"""Characters of a pipe directory: the kernel takes 107 for a socket's whole path, and the
longest name that the daemon adds has 19."""

_MODULE = "drivetrain_trainer.launcher.mps.tied"
_CONTROL_LOG = "control.log"
_OUTPUT = "daemon.out"
_TAIL_BYTES = 4096
_TAIL_LINES = 3
_PAUSE_SECONDS = 0.05


@dataclass
class Daemon:
    """A daemon of ours."""

    gpu: str
    """UUID of its GPU."""
    folder: Path
    """Its own folder, with ``pipe`` and ``log`` below."""
    program: str
    environ: Mapping[str, str]
    pid: int = 0
    """Its process id; 0 before its start and once its end was seen."""

    @property
    def pipe(self) -> ControlPipe:
        """Its control pipe."""
        return ControlPipe(self.folder / "pipe")

    @property
    def logs(self) -> Path:
        """Its log directory."""
        return self.folder / "log"

    @property
    def control(self) -> Control:
        """For commands."""
        return Control(self.program, self.pipe.directory, self.environ)

    def start(self) -> None:
        """Start it in the foreground, as a child that ends with this process.

        Raises:
            MpsError: the folders cannot be made, or the program cannot be started.
        """
        self._make_folders()
        environ = {
            **self.environ,
            VISIBLE: self.gpu,
            PIPE_DIRECTORY: str(self.pipe.directory),
            LOG_DIRECTORY: str(self.logs),
        }
        try:
            with (self.logs / _OUTPUT).open("wb") as output:
                process = subprocess.Popen(  # noqa: S603 - our own module, NVIDIA's program
                    [sys.executable, "-m", _MODULE, str(os.getpid()), self.program, "-f"],
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise MpsError(f"{self.program} cannot be started: {error.strerror}") from error
        process.returncode = 0  # reaped by us, or by the launcher's loop
        self.pid = process.pid

    def await_answer(self, ends: float) -> None:
        """Wait until it answers.

        Args:
            ends: When to give up, on the monotonic clock.

        Raises:
            MpsError: it ended, or did not answer in time; with the last lines of its log.
        """
        reason = "it made no control pipe"
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.pid = 0
                code = os.waitstatus_to_exitcode(status)
                raise MpsError(self.explain(f"ended at once with code {code}"))
            try:
                self.pipe.check_listening()
                self.control.ask("get_server_list")
            except MpsError as error:
                reason = str(error)
            else:
                return
            if time.monotonic() >= ends:
                raise MpsError(self.explain(f"does not answer ({reason})"))
            time.sleep(_PAUSE_SECONDS)

    def limit(self, percentage: int | None, memory: str | None) -> None:
        """Set what each client may use; the daemon sees one GPU, which is its number 0.

        Raises:
            MpsError: the daemon refused, or did not keep what it was told.
        """
        if percentage is not None:
            self.control.ask(f"set_default_active_thread_percentage {percentage}")
            kept = self.control.ask("get_default_active_thread_percentage")
            if not _same_number(kept, percentage):
                raise MpsError(
                    self.explain(f"was told {percentage} % of the threads, and keeps {kept!r}")
                )
        if memory is not None:
            # Not compared: what it answers is rounded to whole gigabytes by some drivers.
            self.control.ask(f"set_default_device_pinned_mem_limit 0 {memory}")

    def explain(self, what: str) -> str:
        """Words on a failure, with the last lines of the daemon's own log."""
        said = _tail(self.logs / _CONTROL_LOG) or _tail(self.logs / _OUTPUT) or "nothing"
        return f"the MPS daemon of {self.gpu} {what}; its log says: {said}"

    def _make_folders(self) -> None:
        directory = self.pipe.directory
        if len(os.fsencode(directory)) > LONGEST_DIRECTORY:
            raise MpsError(
                f"the pipe directory {directory} has {len(os.fsencode(directory))} characters, a "
                f"socket's path leaves it {LONGEST_DIRECTORY}: set {ENV_SCRATCH} to a shorter one"
            )
        try:
            shutil.rmtree(self.folder, ignore_errors=True)
            for folder in (self.folder, directory, self.logs):
                folder.mkdir(mode=0o700, parents=folder is self.folder)
        except OSError as error:
            raise MpsError(f"{self.folder} cannot be made: {error.strerror}") from error


def stop_daemons(daemons: Sequence[Daemon]) -> None:
    """End all at once: asked first, killed where they do not, their pipes removed."""
    left = [daemon for daemon in daemons if daemon.pid]
    asked = [query for daemon in left if (query := _ask_to_quit(daemon)) is not None]
    for seconds in (QUIT_SECONDS, KILL_SECONDS):
        ends = time.monotonic() + seconds
        while (left := [daemon for daemon in left if not _ended(daemon.pid)]) and (
            time.monotonic() < ends
        ):
            time.sleep(_PAUSE_SECONDS)
        for daemon in left:
            log.warning("MPS daemon is killed: it did not end", gpu=daemon.gpu)
            send(daemon.pid, signal.SIGKILL)
    for query in asked:
        query.kill()
        query.close()
        _ended(query.pid)
    for daemon in daemons:
        daemon.pid = 0
        shutil.rmtree(daemon.pipe.directory, ignore_errors=True)


def _ask_to_quit(daemon: Daemon) -> Query | None:
    try:
        return daemon.control.start("quit")
    except MpsError as error:
        log.info("MPS daemon is ended by a signal", gpu=daemon.gpu, reason=str(error))
        send(daemon.pid, signal.SIGTERM)
        return None


def _ended(pid: int) -> bool:
    """Whether a child is gone; collects it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _same_number(text: str, number: int) -> bool:
    try:
        return float(text.splitlines()[-1]) == number
    except (ValueError, IndexError):
        return False


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return plain_text(" / ".join(lines[-_TAIL_LINES:]), 400)
