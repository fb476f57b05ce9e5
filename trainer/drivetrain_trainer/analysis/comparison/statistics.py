"""Few runs, honestly: interquartile means, profiles, intervals.

After Agarwal, Schwarzer, Castro, Courville and Bellemare, "Deep Reinforcement Learning at the
Edge of the Statistical Precipice", NeurIPS 2021 (arXiv:2108.13264), section 4: stratified
bootstrap intervals (4.1), performance profiles (4.2), interquartile mean and probability of
improvement (4.3). What differs from it is that tasks may have unequal numbers of runs: a task
weighs the same however many runs it has, and the quartiles are cut at exactly a quarter of the
weight, through a run if need be. Where the number of runs is a multiple of four, and each task
has as many, both are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Indices = NDArray[np.intp]
    Strata = Sequence[Floats]
    """Scores of one side: a task, and in it a run, each."""

REPETITIONS: Final = 10_000
"""Resamplings, unless said otherwise."""
CONFIDENCE: Final = 0.95
FEW_RUNS: Final = 5
"""Below so many runs a task, intervals are told to be too narrow. Of normal scores of one task,
95 % intervals held the true value in 50, 74, 90 and 94 of 100 cases with 2, 3, 5 and 10 runs."""
_QUARTER: Final = 0.25
_SECOND: Final = 2
"""Runs of a task from which on resampling says anything."""


@dataclass(frozen=True)
class Interval:
    """Where a figure lies."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        """Whether a number lies within, ends included."""
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Estimate:
    """A figure, and how sure it is."""

    value: float
    interval: Interval | None
    """Bootstrap percentiles; None where a task has a single run, which says nothing of spread."""


@dataclass(frozen=True)
class Line:
    """A figure over an axis."""

    value: Floats
    """(m,)."""
    low: Floats | None
    """(m,) lower ends of the intervals; None as in `Estimate`."""
    high: Floats | None
    """(m,) upper ends."""


def weights(strata: Strata) -> Floats:
    """Weight of each run, tasks alike and 1 in all, (n,) in the order of the tasks."""
    return np.concatenate([np.full(one.size, 1 / (one.size * len(strata))) for one in strata])


def interquartile_mean(scores: Floats, weight: Floats) -> Floats:
    """Mean of what lies between the quartiles.

    Args:
        scores: (..., n) finite scores.
        weight: (n,), 1 in all.

    Returns:
        (...).
    """
    order = np.argsort(scores, axis=-1, kind="stable")
    ordered = np.take_along_axis(scores, order, axis=-1)
    part = weight[order]
    end = np.cumsum(part, axis=-1)
    kept = np.minimum(end, 1 - _QUARTER) - np.maximum(end - part, _QUARTER)
    kept = np.clip(kept, 0.0, None)
    found: Floats = (kept * ordered).sum(axis=-1) / kept.sum(axis=-1)
    return found


@dataclass(frozen=True)
class Resampling:
    """Draws of runs with replacement, within each task: the stratified bootstrap.

    The draws are made once, so that what is compared is compared on the same ones.
    """

    draws: tuple[Indices, ...]
    """Indices of runs, (repetitions, runs) a task."""

    @classmethod
    def drawn(cls, sizes: Sequence[int], *, repetitions: int, seed: Sequence[int]) -> Self:
        """Draw.

        Args:
            sizes: Runs of each task.
            repetitions: How often.
            seed: The same seed gives the same draws.
        """
        generator = np.random.default_rng(seed)
        return cls(
            tuple(generator.integers(0, size, (repetitions, size), dtype=np.intp) for size in sizes)
        )

    @property
    def informative(self) -> bool:
        """Whether each task has runs enough to say something of spread."""
        return all(draw.shape[1] >= _SECOND for draw in self.draws)

    def only(self, task: int) -> Self:
        """The draws of one task."""
        return type(self)((self.draws[task],))

    def first(self, repetitions: int) -> Self:
        """Fewer draws, the first of them."""
        return type(self)(tuple(draw[:repetitions] for draw in self.draws))

    def of(self, strata: Strata) -> Floats:
        """The drawn scores, (repetitions, n)."""
        return np.concatenate(
            [one[draw] for one, draw in zip(strata, self.draws, strict=True)], axis=-1
        )

    def counts(self) -> list[Floats]:
        """How often each run was drawn, as a share, (repetitions, runs) a task."""
        return [_counts(draw) / draw.shape[1] for draw in self.draws]


def _counts(draw: Indices) -> Floats:
    repetitions, size = draw.shape
    flat = draw + size * np.arange(repetitions, dtype=np.intp)[:, None]
    return (
        np.bincount(flat.ravel(), minlength=repetitions * size)
        .reshape(repetitions, size)
        .astype(np.float64)
    )


def interval_of(samples: Floats, confidence: float = CONFIDENCE) -> Interval:
    """Percentiles of bootstrap samples, (repetitions,)."""
    low, high = np.quantile(samples, _tails(confidence))
    return Interval(float(low), float(high))


def _tails(confidence: float) -> tuple[float, float]:
    return (1 - confidence) / 2, (1 + confidence) / 2


def aggregate(strata: Strata, draws: Resampling) -> Estimate:
    """Interquartile mean over all runs of all tasks."""
    weight = weights(strata)
    value = float(interquartile_mean(np.concatenate(list(strata)), weight))
    if not draws.informative:
        return Estimate(value, None)
    return Estimate(value, interval_of(interquartile_mean(draws.of(strata), weight)))


def difference(ours: Strata, theirs: Strata, draws: tuple[Resampling, Resampling]) -> Estimate:
    """Interquartile mean of `ours` less that of `theirs`; both are resampled."""
    weight = weights(ours), weights(theirs)
    value = float(
        interquartile_mean(np.concatenate(list(ours)), weight[0])
        - interquartile_mean(np.concatenate(list(theirs)), weight[1])
    )
    if not all(one.informative for one in draws):
        return Estimate(value, None)
    samples = interquartile_mean(draws[0].of(ours), weight[0]) - interquartile_mean(
        draws[1].of(theirs), weight[1]
    )
    return Estimate(value, interval_of(samples))


def improvement(ours: Strata, theirs: Strata, draws: tuple[Resampling, Resampling]) -> Estimate:
    """Probability that a run of `ours` is above one of `theirs`: mean over tasks, ties half.

    The statistic of Mann and Whitney, divided by the number of pairs.
    """
    wins = [_wins(one, other) for one, other in zip(ours, theirs, strict=True)]
    value = float(np.mean([one.mean() for one in wins]))
    if not all(one.informative for one in draws):
        return Estimate(value, None)
    samples = np.mean(
        [
            np.einsum("ra,ab,rb->r", left, one, right, optimize=True)
            for left, one, right in zip(draws[0].counts(), wins, draws[1].counts(), strict=True)
        ],
        axis=0,
    )
    return Estimate(value, interval_of(samples))


def _wins(ours: Floats, theirs: Floats) -> Floats:
    """(a, b): 1 where ours is above, a half where both are the same."""
    gap = ours[:, None] - theirs[None, :]
    return np.where(gap > 0, 1.0, np.where(gap == 0, 0.5, 0.0))


def profile(strata: Strata, thresholds: Floats, draws: Resampling) -> Line:
    """Share of runs above each threshold, tasks alike.

    Args:
        strata: Scores.
        thresholds: (m,).
        draws: Resampling of these tasks.
    """
    above = [(one[:, None] > thresholds[None, :]).astype(np.float64) for one in strata]
    value: Floats = np.mean([one.mean(axis=0) for one in above], axis=0)
    if not draws.informative:
        return Line(value, None, None)
    samples = np.mean(
        [count @ one for count, one in zip(draws.counts(), above, strict=True)], axis=0
    )
    low, high = np.quantile(samples, _tails(CONFIDENCE), axis=0)
    return Line(value, low, high)


def aggregate_over(strata: Sequence[Floats], draws: Resampling) -> Line:
    """Interquartile mean at each place of an axis.

    Args:
        strata: (runs, m) a task.
        draws: Resampling of these tasks.
    """
    places = strata[0].shape[1]
    weight = weights([one[:, 0] for one in strata])
    value = interquartile_mean(np.concatenate(list(strata)).T, weight)
    if not draws.informative:
        return Line(value, None, None)
    low, high = np.empty(places), np.empty(places)
    for place in range(places):
        samples = interquartile_mean(draws.of([one[:, place] for one in strata]), weight)
        low[place], high[place] = np.quantile(samples, _tails(CONFIDENCE))
    return Line(value, low, high)
