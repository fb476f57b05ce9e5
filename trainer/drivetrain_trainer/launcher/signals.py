"""Signals of the launcher, as something that its loop can wait on."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

STOP: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """Latches the first signal that asks to stop, and wakes `wait` on any, SIGCHLD included."""

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        """The first of SIGTERM, SIGINT, SIGHUP that came."""
        self.requested_at: float | None = None
        """When it came, on the monotonic clock: the grace period began then."""
        self.urgent = False
        """A second SIGINT came: a person does not want to wait."""
        self._wake, self._woken = socket.socketpair()

    def install(self) -> None:
        """Take the signals over (main thread only)."""
        for end in (self._wake, self._woken):
            end.settimeout(0)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in STOP:
            signal.signal(number, self._latch)
        signal.signal(signal.SIGCHLD, _ignore)

    def wait(self, seconds: float) -> None:
        """Sleep until a signal comes, at most `seconds`."""
        select.select([self._woken], [], [], max(0.0, seconds))
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass

    def _latch(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.urgent |= number == signal.SIGINT and self.requested is not None
        if self.requested is None:
            self.requested = signal.Signals(number)
            self.requested_at = time.monotonic()


def _ignore(number: int, frame: FrameType | None) -> None:
    """Only wakes: without a handler the wake-up descriptor would get nothing."""
    del number, frame
