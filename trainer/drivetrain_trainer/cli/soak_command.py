"""Run a command under the soak monitor: start it, watch it, end it, judge it."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from drivetrain_api import __version__
from drivetrain_api.artifacts.soak import SoakStatus
from drivetrain_api.atomic import write_text_atomically
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.labels import ENV_SOAK_SECONDS
from drivetrain_trainer.cli.soak_console import Console
from drivetrain_trainer.cli.soak_progress import ProgressLine, verdict_lines
from drivetrain_trainer.hardware.gpu_memory import GpuMemory
from drivetrain_trainer.launcher.parent_death import adopt_orphans
from drivetrain_trainer.launcher.processes import descendants, kill_descendants, reap, send
from drivetrain_trainer.launcher.signals import StopSignals
from drivetrain_trainer.soak.discovery import RunFinder
from drivetrain_trainer.soak.monitor import Monitor
from drivetrain_trainer.soak.processes import TreeSampler, describe
from drivetrain_trainer.soak.processor_time import ProcessorMeter
from drivetrain_trainer.soak.shared_files import SharedFiles
from drivetrain_trainer.soak.summary import SummaryWatch
from drivetrain_trainer.soak.verdict import Ending, Origin, judge

if TYPE_CHECKING:
    from drivetrain_api.artifacts.soak import ResidualProcess, SoakArtifact, SoakFinding
    from drivetrain_trainer.soak.settings import MonitorSettings

ARTIFACT: Final = "soak_artifact.json"
CONSOLE_LOG: Final = "soak_console.log"
INTERRUPTED: Final = 130
_KILL_SECONDS: Final = 10.0
"""What a process in uninterruptible sleep may take to die."""
_PAUSE_SECONDS: Final = 0.02
_TAIL_BYTES: Final = 4096


class SoakCommandError(Exception):
    """A soak that cannot begin, or must not."""


@dataclass(frozen=True)
class Request:
    """What to watch, and how."""

    command: tuple[str, ...]
    settings: MonitorSettings
    run_dir: Path | None
    output: Path | None
    shm_dir: Path
    show_output: bool


def run(request: Request) -> int:
    """Watch the command to its end, keep the artifact, and print the verdict.

    Returns:
        0 where it passed, 1 where it failed, 130 where Ctrl-C or SIGTERM ended it.

    Raises:
        SoakCommandError: the command cannot be started, refused what it was given before a run
            began, or trains by an algorithm that cannot be soaked.
    """
    signals = StopSignals()
    signals.install()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="drivetrain-soak-") as folder:
        console = Console(Path(folder) / CONSOLE_LOG, echo=request.show_output)
        return _Session(request, signals, console).run()


class _Session:
    """One command from its start to its verdict."""

    def __init__(self, request: Request, signals: StopSignals, console: Console) -> None:
        self._request = request
        self._signals = signals
        self._console = console
        self._files = SharedFiles(request.shm_dir)
        self._codes: dict[int, int] = {}
        self._problem: SoakFinding | None = None
        self._cancelled: str | None = None
        self._refused: str | None = None

    def run(self) -> int:
        """See `run`."""
        command = self._start()
        try:
            self._watch(command)
            residual = self._settle()
        finally:
            kill_descendants(_KILL_SECONDS)
            self._console.close()
        self._monitor.watch.look()
        code = self._codes.get(command, -signal.SIGKILL)
        if self._refused is not None:
            raise SoakCommandError(self._refused)
        if code == ExitCode.REFUSED and self._monitor.watch.directory is None:
            raise SoakCommandError(
                f"{shlex.join(self._request.command)}: refused\n{self._console.tail(_TAIL_BYTES)}"
            )
        return self._report(code, residual)

    def _start(self) -> int:
        request = self._request
        seconds = request.settings.duration_s
        length = {} if seconds is None else {ENV_SOAK_SECONDS: f"{seconds:g}"}
        began = time.time()
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command
                request.command,
                env={**os.environ, **length},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise SoakCommandError(f"{request.command[0]}: {error.strerror}") from error
        process.returncode = 0  # every child is reaped here, this one included
        assert process.stdout is not None
        self._console.follow(process.stdout)
        finder = RunFinder(request.run_dir, Path.cwd(), _below, since=began)
        self._monitor = Monitor(
            request.settings,
            TreeSampler(_below, self._files, GpuMemory.here()),
            SummaryWatch(finder, since=began),
            processor=ProcessorMeter(_below),
        )
        return process.pid

    def _watch(self, command: int) -> None:
        """Sample until the command has ended; end it where it must be."""
        progress = ProgressLine(self._monitor)
        due, asked = 0.0, None
        while command not in self._codes:
            now = time.monotonic()
            if now >= due:
                self._monitor.sample()
                due = max(due + self._request.settings.sample_s, now)
                progress.show()
            if asked is None and self._must_end():
                asked = now
                send(command, signal.SIGTERM)
            if asked is not None and (
                self._signals.urgent or now - asked >= self._request.settings.grace_s
            ):
                break
            wait = due - time.monotonic()
            if asked is not None:
                wait = min(wait, asked + self._request.settings.grace_s - time.monotonic())
            self._signals.wait(max(0.0, wait))
            self._codes |= reap()
        progress.clear()
        if command not in self._codes:
            self._kill(command)

    def _must_end(self) -> bool:
        """Whether somebody, or a rule, wants the command to stop."""
        if self._signals.requested is not None:
            self._cancelled = f"the soak was ended by {self._signals.requested.name}"
        elif self._monitor.unsoakable is not None:
            self._refused = self._monitor.unsoakable
        else:
            self._problem = self._monitor.problem() or self._monitor.overrun()
        return (self._cancelled or self._refused or self._problem) is not None

    def _kill(self, command: int) -> None:
        """SIGKILL over the whole tree, the time to stop being over."""
        ends = time.monotonic() + _KILL_SECONDS
        while (left := descendants(os.getpid())) and time.monotonic() < ends:
            for pid in left:
                send(pid, signal.SIGKILL)
            self._signals.wait(_PAUSE_SECONDS)
            self._codes |= reap()
        self._codes.setdefault(command, -signal.SIGKILL)

    def _settle(self) -> tuple[ResidualProcess, ...]:
        """What outlives the command and its grace."""
        ends = time.monotonic() + self._request.settings.grace_s
        while (left := descendants(os.getpid())) and time.monotonic() < ends:
            self._signals.wait(_PAUSE_SECONDS)
            self._codes |= reap()
        return describe(left)

    def _report(self, code: int, residual: tuple[ResidualProcess, ...]) -> int:
        """Judge, keep the artifact and the console's log beside it, and tell."""
        output = self._output()
        log = output.with_name(CONSOLE_LOG)
        artifact = judge(
            self._monitor,
            Ending(
                returncode=code,
                problem=self._problem,
                cancelled=self._cancelled,
                residual=residual,
                residual_shm=tuple(self._files.left()),
            ),
            Origin(
                command=self._request.command,
                context=self._context(),
                console_log=log,
                console_log_cut=self._console.cut,
            ),
        )
        self._keep(artifact, output, log)
        for line in verdict_lines(artifact, output):
            click.echo(line)
        if artifact.status is SoakStatus.PASSED:
            return int(ExitCode.DONE)
        return INTERRUPTED if self._cancelled is not None else int(ExitCode.FAILED)

    def _context(self) -> dict[str, str]:
        return {
            "run_directory": str(self._monitor.watch.directory or ""),
            "working_directory": str(Path.cwd()),
            "host": platform.node(),
            "python": sys.version.split()[0],
            "drivetrain_version": __version__,
        }

    def _output(self) -> Path:
        if self._request.output is not None:
            return self._request.output
        return (self._monitor.watch.directory or Path.cwd()) / ARTIFACT

    def _keep(self, artifact: SoakArtifact, output: Path, log: Path) -> None:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._console.path, log)
            write_text_atomically(output, artifact.to_json())
        except OSError as error:
            raise SoakCommandError(f"{error.filename}: {error.strerror}") from error


def _below() -> list[int]:
    return descendants(os.getpid())
