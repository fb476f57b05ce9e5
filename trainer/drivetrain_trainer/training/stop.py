"""Why a run stops, and the signal that asks it to."""

from __future__ import annotations

import signal
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    """Remembers SIGTERM and SIGINT; the learner asks at its boundaries."""

    def __init__(self) -> None:
        self.requested = False

    def install(self) -> None:
        """Take over SIGTERM and SIGINT of this process (main thread only)."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.requested = True
