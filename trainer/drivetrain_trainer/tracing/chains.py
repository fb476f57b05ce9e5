"""The arrows of ticks, put together from the events of a rank's processes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.tracing.flows import TICK_FLOW, FlowPoint, chain_of, tick_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivetrain_trainer.tracing.reader import Event

_OPEN: Final = 512
"""Ticks of a rank's group that may be under way: far more than its rings hold."""
_FLOW_PHASES: Final = frozenset("stf")
_POINTS: Final = {str(point): point for point in FlowPoint}
POINTS: Final = tuple(FlowPoint)


@dataclass
class Chain:
    """One tick of one group, as far as it was recorded."""

    line: int
    """The rank, attempt and group that it belongs to."""
    tick: int
    times: dict[FlowPoint, int] = field(default_factory=dict)
    """Nanoseconds by point."""

    @property
    def complete(self) -> bool:
        """Whether every point is there."""
        return len(self.times) == len(POINTS)

    def between(self, first: FlowPoint, second: FlowPoint) -> int | None:
        """Nanoseconds from one point to another, None where one is missing."""
        if first not in self.times or second not in self.times:
            return None
        return self.times[second] - self.times[first]


class Chains:
    """Collects points; gives a tick out once many later ones have begun, or at the end.

    Not at its last point: threads of a process may write their events a little out of order.
    """

    def __init__(self) -> None:
        self._open: dict[int, OrderedDict[int, Chain]] = {}

    def add(self, event: Event) -> Chain | None:
        """Take an event of any kind; the chain that is finished by it, if one is."""
        if event.phase not in _FLOW_PHASES or event.name != TICK_FLOW:
            return None
        point = _POINTS.get(event.args.get("at", ""))
        if point is None:
            return None
        number = event.fields["id"]
        line, tick = chain_of(number), tick_of(number)
        chains = self._open.setdefault(line, OrderedDict())
        chain = chains.get(tick)
        if chain is None:
            chain = chains[tick] = Chain(line, tick)
        chain.times[point] = event.start_ns
        return chains.popitem(last=False)[1] if len(chains) > _OPEN else None

    def rest(self) -> Iterator[Chain]:
        """What is left at the end, oldest first."""
        for chains in self._open.values():
            yield from chains.values()
        self._open.clear()
