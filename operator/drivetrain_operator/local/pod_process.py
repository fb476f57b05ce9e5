"""The process of a pod: the head of a session of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from drivetrain_operator.local.pod_layout import PodStartError

if TYPE_CHECKING:
    from pathlib import Path

    from drivetrain_operator.local.pod_environment import Command
    from drivetrain_operator.local.settings import LocalSettings

SIGNAL_BASE = 128
"""A container that a signal ends has this plus its number as exit code."""


class PodProcess:
    """A started pod; whoever watches `pidfd` is told when it ends."""

    def __init__(
        self,
        command: Command,
        *,
        folder: Path,
        stdout: int | Path,
        stderr: Path,
        settings: LocalSettings,
    ) -> None:
        """Start it.

        Args:
            command: Words and environment.
            folder: Working directory.
            stdout: A descriptor of ours, or a log file.
            stderr: A log file.
            settings: For the search path.

        Raises:
            PodStartError: there is no such command.
        """
        name = command.words[0]
        program = settings.find(name)
        if program is None:
            searched = command.environment.get("PATH", "")
            raise PodStartError("StartError", f'"{name}": executable file not found in {searched}')
        with contextlib.ExitStack() as files:
            error_log = files.enter_context(stderr.open("ab"))
            output = stdout if isinstance(stdout, int) else files.enter_context(stdout.open("ab"))
            try:
                self._process = subprocess.Popen(  # noqa: S603 - what the pod template says
                    [program, *command.words[1:]],
                    env=dict(command.environment),
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=error_log,
                    start_new_session=True,
                )
            except OSError as error:
                raise PodStartError("StartError", f"{program}: {error.strerror}") from error
        self.pidfd = os.pidfd_open(self._process.pid)

    @property
    def pid(self) -> int:
        """Process id, of its session and its group too."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """The code as a container runtime gives it; None while it runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else SIGNAL_BASE - code

    @property
    def ended_by(self) -> int | None:
        """Number of the signal that ended it; None where it exited, or runs."""
        code = self._process.returncode
        return -code if code is not None and code < 0 else None

    def send(self, number: signal.Signals) -> None:
        """Signal the process alone, as a pod's PID 1 gets SIGTERM."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def kill_group(self) -> None:
        """SIGKILL to its whole group."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Forget a process that has ended."""
        self._process.wait()
        os.close(self.pidfd)
