"""Means of a fixed set of stats, in one small tensor on the device.

For an update function that is called thousands of times between two exports: a record is three
device operations for all its stats together, where `StatsTracker.stat_compact` takes several a
stat. The tracker takes over what has gathered, and exports it as it does its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from drivetrain_trainer.stats.reduce_type import ReduceType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from drivetrain_trainer.stats.tracker import StatsTracker


class DeviceMeans:
    """Sums of stats over the steps that were not skipped.

    Args:
        keys: Of the stats, in the order in which `add` takes values.
        device: Of the values.
    """

    def __init__(self, keys: Sequence[str], device: torch.device) -> None:
        self.keys = tuple(keys)
        self._totals = torch.zeros(1 + len(self.keys), device=device)
        self._one = torch.ones((), device=device)

    def add(self, values: Sequence[Tensor], *, skipped: Tensor) -> None:
        """Count 0-dim float32 `values` without a graph, one a key, unless `skipped` (0-dim)."""
        self._totals += torch.stack([self._one, *values]).masked_fill_(skipped, 0.0)

    def hand_over(self, tracker: StatsTracker) -> None:
        """Record what has gathered in `tracker`, as means, and start anew; waits for nothing."""
        totals = self._totals.double()
        self._totals.zero_()
        figures = torch.empty(len(self.keys), 4, dtype=torch.float64, device=totals.device)
        figures[:, 0] = totals[1:]
        figures[:, 1] = totals[0]
        figures[:, 2] = math.inf
        figures[:, 3] = -math.inf
        tracker.stat_figures(ReduceType.AVG, **dict(zip(self.keys, figures, strict=True)))
