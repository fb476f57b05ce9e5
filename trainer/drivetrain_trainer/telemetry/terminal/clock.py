"""A fixed clock on a thread of its own."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

REDRAW_S = 0.5
"""Seconds between two redraws: 2 Hz."""


class Clock:
    """Calls `tick` every `period_s` seconds until it is stopped or `tick` returns False.

    A tick that takes long does not shift the later ones; those that were missed are left
    out. `tick` must not raise.
    """

    def __init__(self, tick: Callable[[], bool], *, period_s: float, name: str) -> None:
        self._tick = tick
        self._period_s = period_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; the first tick comes at once."""
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> bool:
        """End it after the tick in progress; False where that tick hangs."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped.is_set() and self._tick():
            now = time.monotonic()
            due += self._period_s
            if due < now:
                due += ((now - due) // self._period_s + 1) * self._period_s
            self._stopped.wait(due - now)
