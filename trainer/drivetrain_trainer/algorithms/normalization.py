"""Running mean and variance of observations, in step across ranks.

Observations are summed up where they are seen and merged at the learner's boundaries, with
the formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for
computing sample variances", 1979), in float64 and in rank order: every rank computes the
same bits.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

MINIMUM_VARIANCE: Final = 1e-4
"""Added to every variance: a column that hardly moves is not blown up into noise."""
CLIP: Final = 10.0
"""Normalised observations are clipped to this many deviations."""


def statistics_size(observation_dim: int) -> int:
    """Elements of one rank's pending statistics: count, sums, sums of squares."""
    return 2 * observation_dim + 1


class ObservationNormalizer(nn.Module):
    """(..., o) raw float32 -> (..., o) float32 of mean 0 and variance 1, clipped.

    Without any observation seen it passes its input on, clipped.
    """

    count: Tensor
    mean: Tensor
    sum_of_squares: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, observation_dim: int) -> None:
        super().__init__()
        wide = torch.zeros(observation_dim, dtype=torch.float64)
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", wide)
        self.register_buffer("sum_of_squares", wide.clone())
        self.register_buffer("shift", torch.zeros(observation_dim))
        self.register_buffer("scale", torch.ones(observation_dim))

    def forward(self, observation: Tensor) -> Tensor:
        """Normalise by the statistics merged so far."""
        return ((observation - self.shift) * self.scale).clamp(-CLIP, CLIP)

    def merge(self, statistics: Tensor) -> None:
        """Take in pending statistics (ranks, 2 o + 1) float64, rank by rank.

        Their sums are of deviations from `mean` as it is now (see `PendingStatistics`). A
        rank whose statistics are not finite, because of a broken observation, is left out.
        """
        origin = self.mean.clone()
        for rank in statistics:
            self._merge_one(torch.where(rank.isfinite().all(), rank, 0.0), origin)
        variance = self.sum_of_squares / self.count.clamp(min=1.0)
        seen = self.count > 0
        self.shift.copy_(self.mean)
        self.scale.copy_(torch.where(seen, torch.rsqrt(variance + MINIMUM_VARIANCE), 1.0))

    def _merge_one(self, rank: Tensor, origin: Tensor) -> None:
        count, sums, squares = rank[0], *rank[1:].chunk(2)
        offset = sums / count.clamp(min=1.0)
        total = (self.count + count).clamp(min=1.0)
        delta = origin + offset - self.mean
        self.sum_of_squares += (squares - count * offset.square()).clamp(min=0.0)
        self.sum_of_squares += delta.square() * (self.count * count / total)
        self.mean += delta * (count / total)
        self.count += count


class PendingStatistics:
    """What a rank has observed since the last merge.

    Sums are of deviations from the normaliser's mean, which is the same on every rank; so
    nothing cancels when columns lie far from 0.
    """

    def __init__(self, normalizer: ObservationNormalizer) -> None:
        self._normalizer = normalizer
        size = statistics_size(normalizer.mean.numel())
        self._totals = torch.zeros(size, dtype=torch.float64, device=normalizer.mean.device)
        self._sums, self._squares = self._totals[1:].chunk(2)

    def add(self, observation: Tensor) -> None:
        """Count raw observations (N, o)."""
        deviation = observation - self._normalizer.mean
        self._totals[0] += deviation.shape[0]
        self._sums += deviation.sum(0)
        self._squares += deviation.square().sum(0)

    def take(self) -> Tensor:
        """All since the last call (2 o + 1) float64, which starts anew."""
        taken = self._totals.clone()
        self._totals.zero_()
        return taken

    def state(self) -> Tensor:
        """What is pending, copied to the host."""
        return self._totals.clone().cpu()

    def load(self, state: Tensor) -> None:
        """Go on from `state`."""
        self._totals.copy_(state)
