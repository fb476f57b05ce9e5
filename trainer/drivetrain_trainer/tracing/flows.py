"""The arrow of a tick: from the collector's request to its rows in the learner's replay."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.tracing.tracer import NULL_TRACER, FlowPhase

if TYPE_CHECKING:
    from drivetrain_trainer.tracing.tracer import Tracer

TICK_FLOW: Final = "tick"
_TICK_BITS: Final = 30
_GROUP_BITS: Final = 4
_RANK_BITS: Final = 12
_ATTEMPT_BITS: Final = 7


class FlowPoint(StrEnum):
    """The points of a tick's arrow, in their order."""

    REQUEST = "request"
    INFERENCE = "inference"
    RESPONSE = "response"
    STEP = "env step"
    WRITE = "ingress write"
    COMMIT = "commit"


_PHASES: Final = dict.fromkeys(FlowPoint, FlowPhase.STEP) | {
    FlowPoint.REQUEST: FlowPhase.START,
    FlowPoint.COMMIT: FlowPhase.END,
}


class TickFlow:
    """Marks the points of a rank's ticks; arrows of ranks and attempts never meet."""

    def __init__(self, tracer: Tracer, *, rank: int = 0, attempt: int = 1, groups: int = 1) -> None:
        self.tracer = tracer
        self._groups = groups
        process = attempt % (1 << _ATTEMPT_BITS) << _RANK_BITS | rank % (1 << _RANK_BITS)
        self._base = process << (_TICK_BITS + _GROUP_BITS)

    def mark(self, point: FlowPoint, tick: int, group: int = 0) -> None:
        """A group's tick passes a point in the span that is open now."""
        if self.tracer.enabled:
            self.tracer.flow(TICK_FLOW, self.number(tick, group), _PHASES[point], point)

    def mark_all(self, point: FlowPoint, tick: int) -> None:
        """Every group's tick passes a point."""
        if self.tracer.enabled:
            for group in range(self._groups):
                self.mark(point, tick, group)

    def number(self, tick: int, group: int = 0) -> int:
        """Number of a group's tick, below 2**53: exact in any reader of JSON."""
        return self._base | group % (1 << _GROUP_BITS) << _TICK_BITS | tick % (1 << _TICK_BITS)


def chain_of(number: int) -> int:
    """What a number's rank, attempt and group have in common over all ticks."""
    return number >> _TICK_BITS


def tick_of(number: int) -> int:
    """The tick of a number."""
    return number % (1 << _TICK_BITS)


NO_FLOW: Final = TickFlow(NULL_TRACER)
"""Marks nothing."""
