"""Why a run stops, and the signal that asks it to."""

from __future__ import annotations

import math
import signal
import time
from enum import IntEnum
from typing import TYPE_CHECKING

from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.labels import ENV_SOAK_SECONDS
from drivetrain_trainer.runtime.doorbell import Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
        self._ends = math.inf

    @property
    def requested(self) -> bool:
        """Whether this rank was asked to stop."""
        return self.interrupt.is_set()

    def finish_after(self, seconds: float) -> None:
        """End the run, complete, at the first boundary after that many seconds from now."""
        self._ends = time.monotonic() + seconds

    @property
    def timed(self) -> bool:
        """Whether the run's time was set."""
        return self._ends < math.inf

    @property
    def finished(self) -> bool:
        """Whether it has trained for as long as it should."""
        return time.monotonic() >= self._ends

    @property
    def wanted(self) -> bool:
        """Whether this rank wants the run to end at the next boundary, for either reason."""
        return self.requested or self.finished

    def reason(self) -> StopReason:
        """What this rank alone would stop for."""
        if self.requested:
            return StopReason.SIGNAL
        return StopReason.DONE if self.finished else StopReason.NONE

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


def soak_seconds(environ: Mapping[str, str]) -> float | None:
    """How long the run is to train; None where only its own length ends it.

    Raises:
        SpecError: the variable is no positive number of seconds.
    """
    text = environ.get(ENV_SOAK_SECONDS)
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        message = f"must be a positive number of seconds; got {text!r}"
        raise SpecError((Violation(ENV_SOAK_SECONDS, message),))
    return seconds
