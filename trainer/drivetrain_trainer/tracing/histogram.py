"""Durations by their logarithm: quantiles of any number of them in a few hundred counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

_STEPS: Final = 32
"""Buckets for each doubling: a quantile is told to about one per cent."""


@dataclass
class Durations:
    """Durations in nanoseconds."""

    count: int = 0
    total: int = 0
    least: int = 0
    greatest: int = 0
    _buckets: dict[int, int] = field(default_factory=dict)

    def add(self, duration: int) -> None:
        """Count one; below a nanosecond counts as one."""
        duration = max(duration, 1)
        self.least = min(self.least, duration) if self.count else duration
        self.greatest = max(self.greatest, duration)
        self.count += 1
        self.total += duration
        bucket = round(math.log2(duration) * _STEPS)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    @property
    def mean(self) -> float:
        """Mean; 0 of none."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The duration below which `share` of all lie, to about one per cent; 0 of none."""
        rank = share * self.count
        passed = 0
        for bucket in sorted(self._buckets):
            passed += self._buckets[bucket]
            if passed >= rank:
                middle = math.exp2(bucket / _STEPS)
                return min(max(middle, self.least), self.greatest)
        return 0.0
