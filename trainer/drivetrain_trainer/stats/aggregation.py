"""Streamed exports of several workers as one, weighted by their counts."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from drivetrain_trainer.stats.reduce_type import COUNT_SUFFIX, StatsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def aggregate(raw_exports: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean over all workers' records: for a key, sum(mean * count) / sum(count).

    Args:
        raw_exports: what `StatsTracker.export` gave in each worker, without a group.

    Returns:
        Key -> mean, without the counts. A key that no worker counted is left out; so is
        one without a ``__count``, whose weight nobody knows (workers stream scalars).

    Raises:
        StatsError: for a count that is negative or not finite.
    """
    counts: defaultdict[str, float] = defaultdict(float)
    terms: defaultdict[str, list[float]] = defaultdict(list)
    for raw in raw_exports:
        for key, value in raw.items():
            if key.endswith(COUNT_SUFFIX):
                continue
            count = raw.get(f"{key}{COUNT_SUFFIX}", 0.0)
            if not math.isfinite(count) or count < 0:
                raise StatsError(f"stat {key!r} has count {count}; it must be finite, at least 0")
            if count:
                counts[key] += count
                terms[key].append(value * count)
    return {key: sum(terms[key]) / counts[key] for key in sorted(terms)}
