"""Server processes of a test: started, paused, stopped, and never left behind.

The kernel kills each when the test process ends, however that ends. It ties a child to the
*thread* that forked it, so all are started by one thread that lives as long as the process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
_FREEZE_POLL_S = 0.005
_TIED = Path(__file__).with_name("run_tied.py")


class ProcessDiedError(RuntimeError):
    """A server ended by itself; the message holds the end of its log."""


class Process:
    """One server, which may be started again; its log is appended to."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.argv = [str(part) for part in argv]
        self.log = log
        self._environment = environment
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._child is not None, f"{self.name} was never started"
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether it lives; a paused one does."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start it; does not wait until it serves."""
        assert not self.running, f"{self.name} runs already"
        self._child = _SPAWNER.submit(self._spawn).result()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(_TIED), str(os.getpid()), *self.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if self._environment is None else dict(self._environment),
                start_new_session=True,  # Ctrl-C at the terminal is for the tests alone
            )

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing where it is gone."""
        if self._child is not None:
            self._child.send_signal(number)

    def pause(self) -> None:
        """Freeze it where it is: its sockets stay open and nobody answers.

        Returns once all its threads stand still, which takes a while on a busy machine.
        """
        self.send(signal.SIGSTOP)
        while self.running and not all(state == "T" for state in self._thread_states()):
            time.sleep(_FREEZE_POLL_S)

    def _thread_states(self) -> Iterator[str]:
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that just ended
                yield stat.read_text().rpartition(")")[2].split()[0]

    def resume(self) -> None:
        """Go on after `pause`."""
        self.send(signal.SIGCONT)

    def stop(self, number: signal.Signals = signal.SIGKILL, timeout_s: float = 30.0) -> None:
        """End it and wait until it is gone; a paused one dies by SIGKILL alone."""
        if self._child is None:
            return
        self.send(number)
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def check(self) -> None:
        """Raise where it has ended by itself.

        Raises:
            ProcessDiedError: It has; with the last lines of its log.
        """
        if not self.running:
            code = None if self._child is None else self._child.returncode
            raise ProcessDiedError(f"{self.name} ended with {code}:\n{self.tail()}")

    def check_or_restart(self, early: str) -> None:
        """As `check`, but start it again where its log ends with these words.

        A service manager does so where a program came before the one that it needs.

        Raises:
            ProcessDiedError: It has ended for another reason.
        """
        if not self.running and early in self.tail(1):
            self.start()
        else:
            self.check()

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])
