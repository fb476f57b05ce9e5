"""Why a run stops, and the signal that asks it to."""

from __future__ import annotations

import signal
from enum import IntEnum
from typing import TYPE_CHECKING

from drivetrain_trainer.runtime.doorbell import Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class StopReason(IntEnum):
    """Ordered: where ranks differ, the greatest holds for all."""

    NONE = 0
    SIGNAL = 1
    TARGET = 2
    DONE = 3

    @property
    def complete(self) -> bool:
        """Whether the run has reached its end."""
        return self in (StopReason.TARGET, StopReason.DONE)


class StopSignal:
    """Remembers SIGTERM and SIGINT; the learner asks at its boundaries.

    Only a wait that may last (for the collector to make its environments) is ended by it.
    """

    def __init__(self) -> None:
        self.interrupt = Interrupt()
        self.signal: str | None = None
        """Name of the first signal."""
        self.on_request: Callable[[], None] | None = None
        """Called by the signal's handler, once: it may look, and must not wait or raise."""

    @property
    def requested(self) -> bool:
        """Whether this rank was asked to stop."""
        return self.interrupt.is_set()

    def install(self) -> None:
        """Take over SIGTERM and SIGINT of this process (main thread only)."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.signal is None:
            self.signal = signal.Signals(number).name
            if self.on_request is not None:
                self.on_request()
        self.interrupt.set()
