"""Curves of one run and bands over several, as arrays: what a plot draws, without drawing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from drivetrain_api.metrics import METRICS
from drivetrain_trainer.analysis.shares import OTHER
from drivetrain_trainer.analysis.window import ITERATION, warm_up_times
from drivetrain_trainer.telemetry.timeline import (
    COLLECTOR_CYCLE,
    ITERATION_TIME,
    LEARNING_TIME,
    SYNCHRONOUS,
    learner_phases,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from drivetrain_trainer.analysis.runs import Series

    Floats = NDArray[np.float64]

POINTS: Final = 400
"""Points of a band: more than a print resolves."""
BINS: Final = 100
"""Columns of a timeline; each is the mean of the reports in it."""


class Axis(StrEnum):
    """What a curve is drawn over."""

    ENV_STEPS = "env_steps"
    """Environment steps over all ranks: the step axis of every backend."""
    WALL = "wall"
    """Seconds since the run's first report, breaks between attempts included."""
    ITERATIONS = "iterations"
    """Learner iterations."""


class Spread(StrEnum):
    """How several seeds become one curve."""

    MINMAX = "minmax"
    """Mean, between the least and the greatest."""
    IQR = "iqr"
    """Median, between the quartiles."""
    SD = "sd"
    """Mean, a standard deviation (of the sample) to either side."""
    NONE = "none"
    """Mean alone."""


@dataclass(frozen=True)
class Curve:
    """One run's values, `x` rising."""

    x: Floats
    """(n,)."""
    y: Floats
    """(n,), NaN where the run logged NaN."""


@dataclass(frozen=True)
class Band:
    """Several runs over the range that all of them have."""

    x: Floats
    """(m,)."""
    middle: Floats
    """(m,) mean or median."""
    low: Floats
    """(m,)."""
    high: Floats
    """(m,)."""


@dataclass(frozen=True)
class Timeline:
    """Shares of a clock over a run."""

    x: Floats
    """(m,)."""
    labels: tuple[str, ...]
    """Phases in their order."""
    shares: Floats
    """(phases, m), 1 being the whole clock."""


def curve(
    series: Series, axis: Axis, *, iterations: Series | None = None, start: float = 0.0
) -> Curve:
    """A run's series over an axis.

    Args:
        series: Values of a tag.
        axis: What they are drawn over.
        iterations: The run's `Train/iteration`; needed for that axis.
        start: Wall time of the run's first report.

    Raises:
        ValueError: iterations are wanted, and the run has none.
    """
    match axis:
        case Axis.ENV_STEPS:
            x = series.steps.astype(np.float64)
        case Axis.WALL:
            x = series.wall_times - start
        case Axis.ITERATIONS:
            if iterations is None or not len(iterations):
                raise ValueError(f"--x iterations needs {ITERATION}, which the run did not log")
            x = np.interp(series.steps, iterations.steps, iterations.values)
    return Curve(x, np.asarray(series.values, dtype=np.float64))


def smoothed(values: Floats, reports: int) -> Floats:
    """Mean of each value and the `reports` - 1 before it, NaN left out; fewer at the start.

    Args:
        values: (n,).
        reports: 1 changes nothing.
    """
    if reports <= 1 or not values.size:
        return values
    known = np.isfinite(values)
    sums = np.concatenate(([0.0], np.cumsum(np.where(known, values, 0.0))))
    counts = np.concatenate(([0], np.cumsum(known)))
    ends = np.arange(1, values.size + 1)
    starts = np.maximum(ends - reports, 0)
    total, count = sums[ends] - sums[starts], counts[ends] - counts[starts]
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def band(curves: Sequence[Curve], spread: Spread) -> Band | None:
    """What several runs have in common; None where their ranges do not meet.

    Each run is interpolated linearly onto one grid over the range that all of them have, so
    that the band never changes because a run ended: beyond it there is none.

    Args:
        curves: One a run.
        spread: Middle and borders.
    """
    known = [_known(one) for one in curves]
    known = [one for one in known if one.x.size]
    if not known:
        return None
    start = max(one.x[0] for one in known)
    end = min(one.x[-1] for one in known)
    if end < start:
        return None
    grid = np.linspace(start, end, POINTS) if end > start else np.array([start])
    values = np.stack([np.interp(grid, one.x, one.y) for one in known])
    middle, low, high = _spread(values, spread)
    return Band(grid, middle, low, high)


def _known(one: Curve) -> Curve:
    finite = np.isfinite(one.y)
    return Curve(one.x[finite], one.y[finite])


def _spread(values: Floats, spread: Spread) -> tuple[Floats, Floats, Floats]:
    mean: Floats = values.mean(axis=0)
    match spread:
        case Spread.MINMAX:
            return mean, values.min(axis=0), values.max(axis=0)
        case Spread.IQR:
            low, median, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
            return median, low, high
        case Spread.SD:
            deviation = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
            return mean, mean - deviation, mean + deviation
        case Spread.NONE:
            return mean, mean, mean


def beyond(one: Curve, end: float) -> Curve:
    """The part of a run from `end` on: what a band over several runs leaves out."""
    after = one.x >= end
    return Curve(one.x[after], one.y[after])


def without_warm_up(series: Mapping[str, Series]) -> dict[str, Series]:
    """The series, performance without the reports before the learner learns.

    Warm-up is short and many times as fast: with it a figure shows nothing else. A run that
    is all warm-up is left as it is.
    """
    warm = np.array(sorted(warm_up_times(series)))
    if not warm.size or warm.size == len(series[LEARNING_TIME]):
        return dict(series)
    return {
        tag: _dropping(one, warm) if tag.startswith("Perf/") else one for tag, one in series.items()
    }


def _dropping(series: Series, times: Floats) -> Series:
    kept = ~np.isin(series.wall_times, times)
    return type(series)(series.steps[kept], series.wall_times[kept], series.values[kept])


def learner_timeline(
    series: Mapping[str, Series], axis: Axis, *, start: float = 0.0, algo: str | None = None
) -> Timeline | None:
    """Shares of Iter Wall by phase, Other last; None where no complete iteration was logged."""
    whole = series.get(ITERATION_TIME)
    if whole is None or not len(whole):
        return None
    tags = [tag for tag in learner_phases(algo) if tag in series and series[tag].values.size]
    wall = _aligned(whole, whole, ITERATION_TIME)
    spent = np.zeros((len(tags), wall.size))
    for row, tag in enumerate(tags):
        spent[row] = _aligned(series[tag], whole, tag)
    other = np.clip(wall - np.nansum(spent, axis=0), 0.0, None)
    return _timeline(
        whole,
        (*(METRICS[tag].label for tag in tags), OTHER),
        np.vstack((spent, other)),
        wall,
        curve_axis=(axis, series.get(ITERATION), start),
    )


def collector_timeline(
    series: Mapping[str, Series], axis: Axis, *, start: float = 0.0, algo: str | None = None
) -> Timeline | None:
    """Shares of the collector's cycle; None where the collector has none, or there is none."""
    if algo in SYNCHRONOUS:
        return None
    tags = [tag for tag in COLLECTOR_CYCLE if tag in series and series[tag].values.size]
    if not tags:
        return None
    whole = max((series[tag] for tag in tags), key=lambda one: one.values.size)
    spent = np.stack([_aligned(series[tag], whole, tag) for tag in tags])
    return _timeline(
        whole,
        tuple(METRICS[tag].label for tag in tags),
        spent,
        np.nansum(spent, axis=0),
        curve_axis=(axis, series.get(ITERATION), start),
    )


def _aligned(series: Series, to: Series, tag: str) -> Floats:
    """Values in ms at the reports of `to`, NaN where a report has none."""
    scale = 1.0 if tag.endswith("_ms") else 1e3
    found = np.full(to.values.size, np.nan)
    place = np.searchsorted(series.wall_times, to.wall_times)
    place = np.minimum(place, series.values.size - 1)
    same = series.wall_times[place] == to.wall_times
    found[same] = scale * series.values[place][same]
    return found


def _timeline(
    at: Series,
    labels: tuple[str, ...],
    spent: Floats,
    whole: Floats,
    *,
    curve_axis: tuple[Axis, Series | None, float],
) -> Timeline | None:
    axis, iterations, start = curve_axis
    kept = np.isfinite(whole) & (whole > 0)
    if not kept.any():
        return None
    x = curve(at, axis, iterations=iterations, start=start).x[kept]
    edges = np.array_split(np.arange(x.size), min(BINS, x.size))
    amounts = np.nan_to_num(spent[:, kept])
    totals = whole[kept]
    return Timeline(
        np.array([x[part].mean() for part in edges]),
        labels,
        np.stack([amounts[:, part].sum(axis=1) / totals[part].sum() for part in edges], axis=1),
    )


def mean_timeline(timelines: Sequence[Timeline]) -> Timeline | None:
    """The mean over several runs, over the range that all of them have."""
    if len(timelines) == 1:
        return timelines[0]
    if not timelines:
        return None
    start = max(one.x[0] for one in timelines)
    end = min(one.x[-1] for one in timelines)
    if end < start:
        return None
    labels = tuple(dict.fromkeys(label for one in timelines for label in one.labels))
    grid = np.linspace(start, end, BINS)
    shares = np.zeros((len(timelines), len(labels), grid.size))
    for run, one in enumerate(timelines):
        for label, share in zip(one.labels, one.shares, strict=True):
            shares[run, labels.index(label)] = np.interp(grid, one.x, share)
    return Timeline(grid, labels, shares.mean(axis=0))
