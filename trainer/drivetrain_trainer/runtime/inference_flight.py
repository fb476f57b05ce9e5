"""How many inference requests are under way, as the collector sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class InferenceFlight:
    """Requests and responses under way, as the collector sees them (requests; ticks)."""

    queue_depth: int
    """Requests that the learner has not answered."""
    action_backlog: int
    """Answers that the collector has not taken."""
    max_action_backlog: int
    in_flight: int
    """Requests whose answer has not been taken."""
    max_in_flight: int
    publication_lag: int
    """Ticks between the newest request and the newest answer."""
    max_publication_lag: int


class FlightCounter:
    """Counts requests and answers taken, and remembers the most of each gauge."""

    def __init__(self, answered: Callable[[], tuple[int, int]]) -> None:
        """Start at none.

        Args:
            answered: tells how many answers the learner has given, and the newest one's tick.
        """
        self._answered = answered
        self._requested = 0
        self._taken = 0
        self._tick = 0
        self._max_backlog = 0
        self._max_in_flight = 0
        self._max_lag = 0

    def requested(self, tick: int) -> None:
        """A request for a tick was published."""
        self._requested += 1
        self._tick = tick
        self.observe()

    def taken(self) -> None:
        """An answer was taken."""
        self._taken += 1

    def observe(self) -> None:
        """Take the gauges into their maxima."""
        responses, newest = self._answered()
        self._max_backlog = max(self._max_backlog, responses - self._taken)
        self._max_in_flight = max(self._max_in_flight, self._requested - self._taken)
        self._max_lag = max(self._max_lag, self._lag(newest))

    def gauges(self, *, reset: bool = False) -> InferenceFlight:
        """Gauges now and their maxima; `reset` starts the maxima anew."""
        responses, newest = self._answered()
        gauges = InferenceFlight(
            queue_depth=max(self._requested - responses, 0),
            action_backlog=max(responses - self._taken, 0),
            max_action_backlog=self._max_backlog,
            in_flight=self._requested - self._taken,
            max_in_flight=self._max_in_flight,
            publication_lag=self._lag(newest),
            max_publication_lag=self._max_lag,
        )
        if reset:
            self._max_backlog = self._max_in_flight = self._max_lag = 0
        return gauges

    def _lag(self, newest: int) -> int:
        return max(self._tick - newest, 0) if self._taken else 0
