"""Scores of runs on one task, at the number of steps that all of them have."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from drivetrain_trainer.analysis.comparison.inputs import ComparisonError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from drivetrain_trainer.analysis.comparison.reading import ComparedRun
    from drivetrain_trainer.analysis.runs import Series

    Floats = NDArray[np.float64]
    Sides = Mapping[str, Sequence["ComparedRun"]]

LAST_SHARE: Final = 0.1
"""Share of the steps, at their end, that a final score is the mean over."""


class Metric(StrEnum):
    """What runs are scored by."""

    EVALUATED = "evaluated"
    """Return of the deterministic policy in episodes of its own."""
    TRAINING = "training"
    """Mean return of the last 100 episodes as they were collected."""

    @property
    def words(self) -> str:
        """For a person."""
        return "evaluated return" if self is Metric.EVALUATED else "training reward"


class Scaling(StrEnum):
    """How returns of tasks become scores that can be averaged."""

    AUTO = "auto"
    """Given references; else returns as they are for one task, and min-max for several."""
    MINMAX = "minmax"
    """0 is the least return that a compared run begins or ends with, 1 the greatest final one."""
    RAW = "raw"
    """Returns as they are."""


@dataclass(frozen=True)
class Scale:
    """Score = (return - low) / (high - low)."""

    low: float
    high: float
    given: bool
    """By the user; else least and greatest of the runs compared."""

    def of(self, values: Floats) -> Floats:
        """Returns as scores."""
        return (values - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class ScoringOptions:
    """What the user decides."""

    metric: Metric | None = None
    """None takes the evaluated return where all runs of a task have one."""
    last_share: float = LAST_SHARE
    scaling: Scaling = Scaling.AUTO
    references: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Task -> returns that are 0 and 1."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Task -> return whose first reaching is looked for; the empty name is of all tasks."""


@dataclass(frozen=True)
class TaskScores:
    """All runs on a task."""

    task: str
    metric: Metric
    start: float
    """Environment steps from which all runs have values."""
    budget: float
    """Environment steps up to which all runs have values."""
    threshold: float | None
    scale: Scale | None
    """None where returns are scores as they are."""
    runs: Mapping[str, tuple[ComparedRun, ...]]
    """By side."""
    final: Mapping[str, Floats]
    """(runs,) mean return over the last share of the budget."""
    area: Mapping[str, Floats]
    """(runs,) mean return from start to budget: the area below the curve over its width."""
    reached: Mapping[str, Floats]
    """(runs,) steps at the first report at or above the threshold; infinite where never."""
    notes: tuple[str, ...] = ()

    @property
    def every(self) -> list[ComparedRun]:
        """All runs, side by side."""
        return [run for runs in self.runs.values() for run in runs]

    def curve(self, run: ComparedRun) -> Series:
        """The curve that the run is scored by."""
        return curve_of(run, self.metric)

    def scaled(self, values: Floats) -> Floats:
        """Returns as scores."""
        return values if self.scale is None else self.scale.of(values)


def curve_of(run: ComparedRun, metric: Metric) -> Series:
    """The run's curve of a metric that it has."""
    found = run.evaluated if metric is Metric.EVALUATED else run.training
    assert found is not None, "chosen by what all runs have"
    return found


def mean_between(series: Series, start: float, end: float) -> float:
    """Mean of a curve, linear between its points and level beyond them.

    Args:
        series: At least one point.
        start: Environment steps.
        end: Environment steps; the value there where it is `start`.
    """
    steps, values = series.steps.astype(np.float64), series.values
    if end <= start:
        return float(np.interp(end, steps, values))
    inside = steps[(steps > start) & (steps < end)]
    places = np.concatenate(([start], inside, [end]))
    heights = np.interp(places, steps, values)
    return float(np.trapezoid(heights, places) / (end - start))


def first_reached(series: Series, threshold: float) -> float:
    """Steps at the first report at or above the threshold; infinite where there is none."""
    above = np.flatnonzero(series.values >= threshold)
    return float(series.steps[above[0]]) if above.size else float("inf")


def score_task(task: str, sides: Sides, options: ScoringOptions) -> TaskScores:
    """Score all runs of a task.

    Args:
        task: Its name.
        sides: Runs that take part, by side; each has a curve.
        options: What the user decides.

    Raises:
        ComparisonError: a run lacks the metric that is wanted.
    """
    every = [run for runs in sides.values() for run in runs]
    metric, notes = _metric(task, every, options.metric)
    curves = {run.path: curve_of(run, metric) for run in every}
    budget = float(min(one.steps[-1] for one in curves.values()))
    start = min(float(max(one.steps[0] for one in curves.values())), budget)
    last = max(start, budget * (1 - options.last_share))
    threshold = _threshold(task, every, options)
    notes += _budgets(task, every, budget)

    def each(runs: Sequence[ComparedRun], start: float) -> Floats:
        return np.array([mean_between(curves[run.path], start, budget) for run in runs])

    return TaskScores(
        task=task,
        metric=metric,
        start=start,
        budget=budget,
        threshold=threshold,
        scale=None,
        runs={side: tuple(runs) for side, runs in sides.items()},
        final={side: each(runs, last) for side, runs in sides.items()},
        area={side: each(runs, start) for side, runs in sides.items()},
        reached={
            side: np.array([first_reached(curves[run.path], threshold) for run in runs])
            for side, runs in sides.items()
            if threshold is not None
        },
        notes=tuple(notes),
    )


def _metric(
    task: str, every: Sequence[ComparedRun], wanted: Metric | None
) -> tuple[Metric, list[str]]:
    lacking = {
        Metric.EVALUATED: [run for run in every if run.evaluated is None],
        Metric.TRAINING: [run for run in every if run.training is None],
    }
    if wanted is not None:
        if lacking[wanted]:
            raise ComparisonError(
                f"{task}: {len(lacking[wanted])} of {len(every)} runs have no {wanted.words}, "
                f"the first {lacking[wanted][0].path}"
            )
        return wanted, []
    if not lacking[Metric.EVALUATED]:
        return Metric.EVALUATED, []
    if lacking[Metric.TRAINING]:
        raise ComparisonError(
            f"{task}: no curve is common to all runs: {lacking[Metric.EVALUATED][0].path} has no "
            f"evaluated return, {lacking[Metric.TRAINING][0].path} no training reward"
        )
    without = len(lacking[Metric.EVALUATED])
    which = f"{without} of {len(every)} runs have no evaluated return"
    if without == len(every):
        which = "no run was evaluated"
    return Metric.TRAINING, [
        f"{task}: {which}; training rewards are compared, of the policy as it explores."
    ]


def _budgets(task: str, every: Sequence[ComparedRun], budget: float) -> list[str]:
    at = f"all are compared at {budget:,.0f}, which all have."
    asked = {run.budget for run in every if run.budget is not None}
    if len(asked) > 1:
        listed = ", ".join(f"{steps:,}" for steps in sorted(asked))
        return [f"{task}: the runs were to do {listed} environment steps; {at}"]
    longest = max((run.summary.total_env_steps for run in every if run.summary), default=0)
    if longest > budget * (1 + LAST_SHARE):
        return [f"{task}: the longest run did {longest:,} environment steps; {at}"]
    return []


def _threshold(task: str, every: Sequence[ComparedRun], options: ScoringOptions) -> float | None:
    given = options.thresholds.get(task, options.thresholds.get(""))
    if given is not None:
        return given
    targets = {run.target for run in every}
    return targets.pop() if len(targets) == 1 else None


def scaled(tasks: Sequence[TaskScores], options: ScoringOptions) -> dict[str, Scale | None]:
    """The scale of each task.

    Raises:
        ComparisonError: several tasks have no common scale, or a reference is of no use.
    """
    names = [one.task for one in tasks]
    unknown = sorted(set(options.references) - set(names))
    if unknown:
        raise ComparisonError(
            f"--reference {unknown[0]}: no compared runs are of that task, but {', '.join(names)}"
        )
    if options.references:
        missing = [name for name in names if name not in options.references]
        if missing:
            raise ComparisonError(
                f"no common scale: {', '.join(missing)} has no --reference TASK=LOW,HIGH, "
                f"and {', '.join(sorted(options.references))} has one"
            )
        return {name: Scale(*options.references[name], given=True) for name in names}
    if options.scaling is Scaling.RAW and len(tasks) > 1:
        raise ComparisonError(
            f"no common scale: returns of {', '.join(names)} cannot be averaged as they are; "
            "give a --reference TASK=LOW,HIGH for each, or --scale minmax"
        )
    if options.scaling is Scaling.MINMAX or len(tasks) > 1:
        return {one.task: _minmax(one) for one in tasks}
    return dict.fromkeys(names)


def _minmax(one: TaskScores) -> Scale:
    """From where runs began, or ended if that is lower, to where the best one ended."""
    finals = np.concatenate(list(one.final.values()))
    began = [mean_between(one.curve(run), one.start, one.start) for run in one.every]
    low, high = float(min(finals.min(), *began)), float(finals.max())
    if low == high:
        raise ComparisonError(
            f"{one.task}: all runs begin and end with a return of {low:g}, which gives no scale: "
            f"give --reference {one.task}=LOW,HIGH"
        )
    return Scale(low, high, given=False)
