"""The part of a run that a diagnosis looks at: its last reports, warm-up left out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from drivetrain_trainer.telemetry.timeline import ITERATION_TIME, LEARNING_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from drivetrain_trainer.analysis.runs import Series

LEAST_REPORTS: Final = 5
"""A window in seconds holds at least so many reports, where the run has them."""
ITERATION: Final = "Train/iteration"
CUMULATIVE: Final = (
    "Train/replay_ingress_backpressure_wait_ms",
    "Train/replay_ingress_dropped_batches",
    "Train/invalid_rows",
    ITERATION,
)
"""Tags that count since the process began: what they grew by is what a window asks for."""
_SPAN: Final = re.compile(r"(?P<size>[0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(?P<unit>s|m|h|reports?|)")
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Span:
    """How far back a window reaches: `seconds` of wall time, or a number of `reports`."""

    seconds: float | None = None
    reports: int | None = None

    @classmethod
    def parse(cls, text: str) -> Span:
        """``30s``, ``5m``, ``1h``, or reports: ``200``, ``200 reports``.

        Raises:
            ValueError: it is neither, or nothing.
        """
        found = _SPAN.fullmatch(text.strip().lower())
        if found is not None:
            size, unit = found["size"], found["unit"]
            if unit in _SECONDS and float(size) > 0:
                return cls(seconds=float(size) * _SECONDS[unit])
            if unit not in _SECONDS and size.isdecimal() and int(size) > 0:
                return cls(reports=int(size))
        raise ValueError(
            f"{text!r} is no span: give seconds (30s), minutes (5m), hours (1h) "
            "or a number of reports (200), above 0"
        )


@dataclass(frozen=True)
class Window:
    """The last reports of a run; every report counts once."""

    means: Mapping[str, float]
    """Tag -> mean over the reports, values that are not finite left out."""
    latest: Mapping[str, float]
    """Tag -> last value."""
    growth: Mapping[str, float]
    """Cumulative tag -> what it grew by; a restart of the count does not count."""
    nonfinite: Mapping[str, int]
    """Tag -> values that are NaN or infinite; tags without any are absent."""
    reports: int
    """Reports in it."""
    warm_up: int
    """Reports left out because the learner was not learning yet when they began."""
    only_warm_up: bool
    """Nothing but warm-up is there, and it is what was looked at."""
    seconds: float
    """Wall time from the first report to the last."""
    env_steps: int
    """Environment steps from the first report to the last."""
    ended: float
    """Wall time of the last report, seconds since the epoch."""
    gap: float
    """Median seconds between two reports."""


class EmptyRunError(ValueError):
    """A run that has reported nothing yet."""


def window_of(series: Mapping[str, Series], span: Span) -> Window:
    """The last `span` of a run.

    A report in which the learner learnt nothing is warm-up, and so is the one after it: part
    of that was. They are left out as long as others remain.

    Args:
        series: Canonical tag -> series.
        span: How far back it reaches.

    Raises:
        EmptyRunError: there is no report.
    """
    anchor = _anchor(series)
    times = anchor.wall_times
    chosen = _chosen(times, span)
    warm = warm_up_times(series) & set(times[chosen].tolist())
    only_warm_up = bool(warm) and len(warm) == int(chosen.sum())
    left_out = np.array([] if only_warm_up else sorted(warm))
    kept = chosen & ~np.isin(times, left_out)
    first, last = times[kept][0], times[kept][-1]
    values = {tag: _within(found, first, last, left_out) for tag, found in series.items()}
    values = {tag: found for tag, found in values.items() if found.size}
    finite = {tag: found[np.isfinite(found)] for tag, found in values.items()}
    steps = anchor.steps[kept]
    return Window(
        means={tag: float(found.mean()) for tag, found in finite.items() if found.size},
        latest={tag: float(found[-1]) for tag, found in values.items()},
        growth={
            tag: float(np.diff(finite[tag]).clip(min=0).sum())
            for tag in CUMULATIVE
            if tag in finite and finite[tag].size
        },
        nonfinite={
            tag: found.size - finite[tag].size
            for tag, found in values.items()
            if found.size > finite[tag].size
        },
        reports=int(kept.sum()),
        warm_up=int(chosen.sum() - kept.sum()),
        only_warm_up=only_warm_up,
        seconds=float(last - first),
        env_steps=int(np.diff(steps).clip(min=0).sum()),
        ended=float(times[-1]),
        gap=float(np.median(np.diff(times))) if times.size > 1 else 0.0,
    )


def _anchor(series: Mapping[str, Series]) -> Series:
    """The series whose reports are the run's: the iteration time, or else the longest."""
    found = series.get(ITERATION_TIME)
    if found is None:
        found = max(series.values(), key=lambda one: one.steps.size, default=None)
    if found is None or not found.steps.size:
        raise EmptyRunError("the run has reported nothing yet")
    return found


def _chosen(times: NDArray[np.float64], span: Span) -> NDArray[np.bool_]:
    count = span.reports or 0
    if span.seconds is not None:
        count = max(int((times >= times[-1] - span.seconds).sum()), LEAST_REPORTS)
    chosen = np.zeros(times.size, dtype=np.bool_)
    chosen[-count:] = True
    return chosen


def warm_up_times(series: Mapping[str, Series]) -> set[float]:
    """Wall times of the reports that are warm-up wholly or in part: see `window_of`."""
    learning = series.get(LEARNING_TIME)
    if learning is None:
        return set()
    idle = learning.values == 0
    partly = np.concatenate(([False], idle[:-1])) if idle.size else idle
    return set(learning.wall_times[idle | partly].tolist())


def _within(
    series: Series, first: float, last: float, left_out: NDArray[np.float64]
) -> NDArray[np.float64]:
    times = series.wall_times
    kept = (times >= first) & (times <= last) & ~np.isin(times, left_out)
    return np.asarray(series.values[kept], dtype=np.float64)
