"""Growth and decay of noisy series, told apart from saw-teeth, steps and outliers."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

Item = TypeVar("Item")
Point = tuple[float, float]
"""Time in seconds, value."""

LEAST_POINTS: Final = 12
"""Fewer say nothing of a trend."""
_MOST_POINTS: Final = 200
"""Of which every pair is looked at: 19,900 slopes."""
_QUARTERS: Final = 4
_CLIMBS: Final = 2
"""Quarters that must lie above the one before: a single step is no leak."""
_CLIMB_SHARE: Final = 0.1
"""Of the limit, that such a climb must be."""
_FALL_SHARE: Final = 0.5
"""Of the floor's rise, that it may have fallen on the way."""
_FLOOR_SHARE: Final = 0.5
"""Of the limit, that the floor must have risen by from the first quarter to the last."""
_LEAST_SCORE: Final = 3.0
"""Standard deviations that a trend must be away from chance: noise gets there once in 740 times."""


@dataclass(frozen=True)
class Growth:
    """How a resource developed."""

    amount: float
    """Robust slope times the span: what it grew by, 0 for a saw-tooth."""
    leaks: bool
    """Whether it climbs beyond the limit, and goes on climbing."""
    seconds: float
    """Span that this was seen in."""


def theil_sen(points: Sequence[Point]) -> float:
    """Median of the slopes between all pairs of points (Theil 1950, Sen 1968).

    Up to 29 % of the points may be arbitrarily wrong.

    Args:
        points: At least two, at different times; long series are thinned evenly.
    """
    thinned = _thinned(points)
    slopes = [
        (late_value - value) / (late - early)
        for (early, value), (late, late_value) in combinations(thinned, 2)
        if late > early
    ]
    return statistics.median(slopes) if slopes else 0.0


def mann_kendall(points: Sequence[Point]) -> float:
    """How many standard deviations a trend is away from chance (Mann 1945, Kendall 1975).

    Pairs of points that rise less those that fall, over the deviation that this has for values
    in random order, ``sqrt(n (n - 1) (2 n + 5) / 18)``. Ties count as neither, which only makes
    the score smaller.

    Args:
        points: At least two, in order of time; long series are thinned evenly.
    """
    thinned = _thinned(points)
    count = len(thinned)
    rises = sum(
        (late > early) - (late < early) for (_, early), (_, late) in combinations(thinned, 2)
    )
    return rises / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


def growth(points: Sequence[Point], limit: float) -> Growth | None:
    """Whether a resource leaks: over the whole series, or over its second half alone.

    Four things must hold. The robust slope amounts to more than the limit. The series rises
    more often than chance has it, which noise of few samples does not. The floor (the lower
    quartile of each quarter of the series) has risen by half of the limit, which a saw-tooth's
    does not. And it rose at least twice, which a step's does not. What the second half alone
    shows must also lie above nearly all of the first, which a slow saw-tooth does not.

    Args:
        points: In order of time.
        limit: Growth over a series that is still allowed.

    Returns:
        None where the points are too few to tell.
    """
    if len(points) < LEAST_POINTS:
        return None
    whole = _growth(points, limit)
    early, late = _parts(points, 2)
    if not whole.leaks and len(late) >= LEAST_POINTS:
        begun = _growth(late, limit)
        last = _lower_quartile(_parts(late, _QUARTERS)[-1])
        if begun.leaks and last - _ceiling(early) > limit * _FLOOR_SHARE:
            return begun
    return whole


def _growth(points: Sequence[Point], limit: float) -> Growth:
    span = points[-1][0] - points[0][0]
    amount = theil_sen(points) * span
    floors = [_lower_quartile(part) for part in _parts(points, _QUARTERS)]
    changes = [late - early for early, late in pairwise(floors)]
    climbs = sum(change > limit * _CLIMB_SHARE for change in changes)
    falls = -sum(change for change in changes if change < 0)
    rise = floors[-1] - floors[0]
    rose = rise > limit * _FLOOR_SHARE and falls <= rise * _FALL_SHARE
    steady = mann_kendall(points) >= _LEAST_SCORE
    return Growth(
        amount, leaks=amount > limit and steady and rose and climbs >= _CLIMBS, seconds=span
    )


@dataclass(frozen=True)
class Decay:
    """Throughput at both ends of a series."""

    first: float
    """Median of its first third."""
    last: float
    """Median of its last third."""

    @property
    def lost(self) -> float:
        """Share that was lost; 0 where it grew."""
        return max(0.0, 1 - self.last / self.first) if self.first > 0 else 0.0


def decay(rates: Sequence[float]) -> Decay | None:
    """Throughput of the first third against the last; None where they are too few to tell."""
    if len(rates) < LEAST_POINTS:
        return None
    first, _, last = _parts(rates, 3)
    return Decay(statistics.median(first), statistics.median(last))


def _parts(series: Sequence[Item], count: int) -> list[Sequence[Item]]:
    cuts = [round(len(series) * index / count) for index in range(count + 1)]
    return [series[early:late] for early, late in pairwise(cuts)]


def _lower_quartile(points: Sequence[Point]) -> float:
    """Of few points the second lowest: one of them may be wrong."""
    values = sorted(value for _, value in points)
    return values[min(max(1, len(values) // 4), len(values) - 1)]


def _ceiling(points: Sequence[Point]) -> float:
    """What all but a twentieth lie below: of few points the second highest."""
    values = sorted(value for _, value in points)
    return values[min(len(values) * 19 // 20, len(values) - 2)]


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    if len(points) <= _MOST_POINTS:
        return points
    last = len(points) - 1
    return [points[round(index * last / (_MOST_POINTS - 1))] for index in range(_MOST_POINTS)]
