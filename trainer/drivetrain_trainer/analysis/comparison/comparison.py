"""The comparison itself: runs in, figures with their intervals out. Nothing is drawn here."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np

from drivetrain_trainer.analysis.comparison import statistics
from drivetrain_trainer.analysis.comparison.inputs import ComparisonError
from drivetrain_trainer.analysis.comparison.result import (
    GRID,
    Comparison,
    Curve,
    LeftOut,
    Pair,
    SideResult,
    TaskResult,
    TaskSide,
)
from drivetrain_trainer.analysis.comparison.scoring import scaled, score_task
from drivetrain_trainer.analysis.comparison.statistics import Resampling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from drivetrain_trainer.analysis.comparison.reading import ComparedRun
    from drivetrain_trainer.analysis.comparison.result import Options
    from drivetrain_trainer.analysis.comparison.scoring import TaskScores

    Floats = NDArray[np.float64]

_PROFILE_PLACES: Final = 201
_CURVE_REPETITIONS: Final = 1_000
"""A band is looked at, not read off: fewer resamplings do."""
_EVEN: Final = 0.5
_SHOWN: Final = 3
"""Runs that a refusal names."""


def compare(runs: Sequence[ComparedRun], options: Options) -> Comparison:
    """Compare the sides that the runs are of, on the tasks that all sides have.

    Raises:
        ComparisonError: nothing is left to compare, or there is no common scale.
    """
    taking = [run for run in runs if run.has_curve and (run.complete or options.unfinished)]
    if not taking:
        raise ComparisonError(_nothing(runs, options))
    names = list(dict.fromkeys(run.side for run in taking))
    tasks, others = _common_tasks(taking, names)
    kept = [run for run in taking if run.task in tasks]
    scores = [
        score_task(
            task,
            {name: [r for r in kept if (r.side, r.task) == (name, task)] for name in names},
            options.scoring,
        )
        for task in tasks
    ]
    scales = scaled(scores, options.scoring)
    scores = [replace(one, scale=scales[one.task]) for one in scores]
    taken = {run.path for run in kept}
    return _compared(
        scores,
        names,
        options,
        runs=kept,
        left_out=tuple(_left_out(run, tasks) for run in runs if run.path not in taken),
        notes=_notes(runs, names, scores, others),
    )


def _compared(
    scores: Sequence[TaskScores],
    names: Sequence[str],
    options: Options,
    *,
    runs: Sequence[ComparedRun],
    left_out: tuple[LeftOut, ...],
    notes: tuple[str, ...],
) -> Comparison:
    draws = {
        name: Resampling.drawn(
            [len(one.runs[name]) for one in scores],
            repetitions=options.repetitions,
            seed=(options.seed, place),
        )
        for place, name in enumerate(names)
    }
    finals = {name: [one.scaled(one.final[name]) for one in scores] for name in names}
    thresholds = _thresholds(finals)
    return Comparison(
        sides=tuple(_side(name, scores, finals, thresholds, draws[name]) for name in names),
        pairs=tuple(_pair(finals, draws, pair) for pair in combinations(names, 2)),
        tasks=tuple(
            TaskResult(
                one,
                tuple(_task_side(one, name, draws[name].only(place)) for name in names),
            )
            for place, one in enumerate(scores)
        ),
        thresholds=thresholds,
        runs=tuple(runs),
        left_out=left_out,
        notes=notes,
        options=options,
    )


def _pair(
    finals: Mapping[str, Sequence[Floats]], draws: Mapping[str, Resampling], names: tuple[str, str]
) -> Pair:
    """The better side first."""
    one, other = (finals[name] for name in names)
    both = (draws[names[0]], draws[names[1]])
    pair = Pair(
        *names, statistics.improvement(one, other, both), statistics.difference(one, other, both)
    )
    return pair if pair.improvement.value >= _EVEN else pair.turned


def _nothing(runs: Sequence[ComparedRun], options: Options) -> str:
    listed = "; ".join(f"{run.path}: {_left_out(run, ()).why}" for run in runs[:_SHOWN])
    more = f"; and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else ""
    some = any(run.has_curve for run in runs)
    advice = "; --unfinished compares what they have" if some and not options.unfinished else ""
    return f"no complete run with a return to compare: {listed}{more}{advice}"


def _left_out(run: ComparedRun, tasks: Sequence[str]) -> LeftOut:
    if not run.complete:
        words = run.standing.value
        return LeftOut(run, f"{words}: {run.reason}" if run.reason else words)
    if not run.has_curve:
        return LeftOut(run, "it has reported no return")
    assert run.task not in tasks, "whatever else is complete takes part"
    return LeftOut(run, f"not every side has {run.task}")


def _common_tasks(
    taking: Sequence[ComparedRun], names: Sequence[str]
) -> tuple[list[str], list[str]]:
    by_side = {name: {run.task for run in taking if run.side == name} for name in names}
    common = set.intersection(*by_side.values())
    if not common:
        listed = "; ".join(f"{name}: {', '.join(sorted(by_side[name]))}" for name in names)
        raise ComparisonError(f"the sides have no task in common ({listed})")
    return sorted(common), sorted(set.union(*by_side.values()) - common)


def _notes(
    runs: Sequence[ComparedRun],
    names: Sequence[str],
    scores: Sequence[TaskScores],
    others: Sequence[str],
) -> tuple[str, ...]:
    notes = [note for one in scores for note in one.notes]
    notes += [
        f"{side} takes no part: it has no complete run with a return."
        for side in dict.fromkeys(run.side for run in runs if run.counted)
        if side not in names
    ]
    notes += [note for one in scores for note in _repeated(one)]
    if others:
        notes.append(f"Left out since not every side has it: {', '.join(others)}.")
    scale = scores[0].scale
    if scale is not None and not scale.given:
        notes.append(
            "Scores are scaled within this comparison: 0 is the least return that a run of the "
            "task begins or ends with, 1 the greatest final one. They change with what is compared."
        )
    return tuple(notes)


def _repeated(scores: TaskScores) -> list[str]:
    """A seed that ran twice is no second seed."""
    notes = []
    for side, runs in scores.runs.items():
        seeds = [run.seed for run in runs if run.seed is not None]
        twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
        if twice:
            listed = ", ".join(map(str, twice))
            notes.append(
                f"{scores.task}: {side} has several runs of seed {listed}, which may be the same "
                "run over again: intervals take them for different seeds."
            )
    return notes


def _thresholds(finals: Mapping[str, Sequence[Floats]]) -> Floats:
    every = np.concatenate([one for strata in finals.values() for one in strata])
    low, high = float(every.min()), float(every.max())
    margin = 0.03 * (high - low) or max(abs(high), 1.0) * 0.03
    return np.linspace(low - margin, high + margin, _PROFILE_PLACES)


def _side(
    name: str,
    scores: Sequence[TaskScores],
    finals: Mapping[str, Sequence[Floats]],
    thresholds: Floats,
    draws: Resampling,
) -> SideResult:
    counts = [len(one.runs[name]) for one in scores]
    return SideResult(
        side=name,
        runs=sum(counts),
        fewest=min(counts),
        final=statistics.aggregate(finals[name], draws),
        area=statistics.aggregate([one.scaled(one.area[name]) for one in scores], draws),
        profile=statistics.profile(finals[name], thresholds, draws),
        over_training=_over_training(name, scores, draws.first(_CURVE_REPETITIONS)),
    )


def _over_training(name: str, scores: Sequence[TaskScores], draws: Resampling) -> Curve:
    shares = np.linspace(max(one.start / one.budget for one in scores), 1.0, GRID)
    values = [
        np.stack(
            [
                one.scaled(np.interp(shares * one.budget, curve.steps, curve.values))
                for curve in map(one.curve, one.runs[name])
            ]
        )
        for one in scores
    ]
    return Curve(shares, statistics.aggregate_over(values, draws))


def _task_side(scores: TaskScores, name: str, draws: Resampling) -> TaskSide:
    reached = scores.reached.get(name)
    few = draws.first(_CURVE_REPETITIONS)
    return TaskSide(
        side=name,
        runs=len(scores.runs[name]),
        final=statistics.aggregate([scores.final[name]], draws),
        area=statistics.aggregate([scores.area[name]], draws),
        reached=0 if reached is None else int(np.isfinite(reached).sum()),
        steps_to_threshold=None if reached is None else float(np.median(reached)),
        over_steps=_over_steps(scores, name, few),
        over_time=_over_time(scores, name, few),
    )


def _over_steps(scores: TaskScores, name: str, draws: Resampling) -> Curve:
    places = np.linspace(scores.start, scores.budget, GRID)
    curves = [scores.curve(run) for run in scores.runs[name]]
    values = np.stack([np.interp(places, one.steps, one.values) for one in curves])
    return Curve(places, statistics.aggregate_over([values], draws))


def _over_time(scores: TaskScores, name: str, draws: Resampling) -> Curve:
    times, values = [], []
    for run in scores.runs[name]:
        curve = scores.curve(run)
        kept = curve.steps <= scores.budget
        kept[0] = True
        # A clock that was set back stands still until it is where it was.
        times.append(np.maximum.accumulate(curve.wall_times[kept] - run.began))
        values.append(curve.values[kept])
    end = min(float(one[-1]) for one in times)
    start = min(max(float(one[0]) for one in times), end)
    places = np.linspace(start, end, GRID)
    heights = [np.interp(places, *one) for one in zip(times, values, strict=True)]
    return Curve(places, statistics.aggregate_over([np.stack(heights)], draws))
