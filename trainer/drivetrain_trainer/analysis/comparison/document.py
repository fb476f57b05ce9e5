"""A comparison as JSON, for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from pydantic import Field

from drivetrain_api.artifacts.base import ArtifactModel
from drivetrain_trainer.analysis.comparison import words

if TYPE_CHECKING:
    from drivetrain_trainer.analysis.comparison.circumstances import (
        Circumstances,
        Difference,
        StageTime,
    )
    from drivetrain_trainer.analysis.comparison.reading import ComparedRun
    from drivetrain_trainer.analysis.comparison.result import (
        Comparison,
        Curve,
        Pair,
        SideResult,
        TaskResult,
        TaskSide,
    )
    from drivetrain_trainer.analysis.comparison.statistics import Estimate

Number = Annotated[float, Field(allow_inf_nan=False)]


class Figure(ArtifactModel):
    """A figure with its 95 % bootstrap interval; both ends are null where there is none."""

    value: Number
    low: Number | None
    high: Number | None

    @classmethod
    def of(cls, found: Estimate) -> Self:
        """The figure of an estimate."""
        ends = found.interval
        return cls(
            value=found.value,
            low=None if ends is None else ends.low,
            high=None if ends is None else ends.high,
        )


class CurveDocument(ArtifactModel):
    """An interquartile mean over an axis; `low` and `high` are null as in `Figure`."""

    x: tuple[Number, ...]
    value: tuple[Number, ...]
    low: tuple[Number, ...] | None
    high: tuple[Number, ...] | None

    @classmethod
    def of(cls, found: Curve) -> Self:
        """The curve's numbers."""
        line = found.line
        return cls(
            x=tuple(found.x.tolist()),
            value=tuple(line.value.tolist()),
            low=None if line.low is None else tuple(line.low.tolist()),
            high=None if line.high is None else tuple(line.high.tolist()),
        )


class SideDocument(ArtifactModel):
    """A side over all tasks."""

    side: str
    runs: int
    final: Figure
    area: Figure

    @classmethod
    def of(cls, found: SideResult) -> Self:
        """The side's numbers."""
        return cls(
            side=found.side,
            runs=found.runs,
            final=Figure.of(found.final),
            area=Figure.of(found.area),
        )


class PairDocument(ArtifactModel):
    """Two sides against each other."""

    ours: str
    theirs: str
    probability_of_improvement: Figure
    difference: Figure

    @classmethod
    def of(cls, found: Pair) -> Self:
        """The pair's numbers."""
        return cls(
            ours=found.ours,
            theirs=found.theirs,
            probability_of_improvement=Figure.of(found.improvement),
            difference=Figure.of(found.difference),
        )


class TaskSideDocument(ArtifactModel):
    """A side on one task; returns, unscaled."""

    side: str
    final: Figure
    area: Figure
    final_returns: tuple[Number, ...]
    """Of each run, in the order of seeds."""
    reached: int
    """Runs that reached the threshold."""
    median_steps_to_threshold: Number | None
    """Null where half of the runs never did, or there is no threshold."""
    over_steps: CurveDocument
    over_seconds: CurveDocument

    @classmethod
    def of(cls, found: TaskSide, finals: tuple[float, ...]) -> Self:
        """The side's numbers."""
        steps = found.steps_to_threshold
        return cls(
            side=found.side,
            final=Figure.of(found.final),
            area=Figure.of(found.area),
            final_returns=finals,
            reached=found.reached,
            median_steps_to_threshold=steps if steps is not None and np.isfinite(steps) else None,
            over_steps=CurveDocument.of(found.over_steps),
            over_seconds=CurveDocument.of(found.over_time),
        )


class TaskDocument(ArtifactModel):
    """A task."""

    task: str
    metric: Literal["evaluated", "training"]
    start_env_steps: Number
    env_steps: Number
    """At which runs are compared."""
    threshold: Number | None
    scale: tuple[Number, Number] | None
    """Returns that are scores of 0 and 1; null where returns are scores."""
    sides: tuple[TaskSideDocument, ...]

    @classmethod
    def of(cls, found: TaskResult) -> Self:
        """The task's numbers."""
        scores = found.scores
        return cls(
            task=scores.task,
            metric=scores.metric.value,
            start_env_steps=scores.start,
            env_steps=scores.budget,
            threshold=scores.threshold,
            scale=None if scores.scale is None else (scores.scale.low, scores.scale.high),
            sides=tuple(
                TaskSideDocument.of(one, tuple(scores.final[one.side].tolist()))
                for one in found.sides
            ),
        )


class DifferenceDocument(ArtifactModel):
    """A setting or a version that differs; values by side."""

    name: str
    values: tuple[str, ...]

    @classmethod
    def of(cls, found: Difference) -> Self:
        """The difference."""
        return cls(name=found.name, values=found.values)


class StageTimeDocument(ArtifactModel):
    """A stage of a side on one kind of hardware."""

    side: str
    stage: str
    hardware: str
    runs: int
    mean_seconds: Number
    total_seconds: Number

    @classmethod
    def of(cls, found: StageTime) -> Self:
        """The stage's numbers."""
        return cls(
            side=found.side,
            stage=found.stage,
            hardware=found.hardware,
            runs=found.runs,
            mean_seconds=found.mean_seconds,
            total_seconds=found.total_seconds,
        )


class RunDocument(ArtifactModel):
    """A run, and why it takes no part where it does not."""

    side: str
    path: str
    task: str
    seed: int | None
    standing: str
    left_out: str | None

    @classmethod
    def of(cls, run: ComparedRun, left_out: str | None = None) -> Self:
        """The run."""
        return cls(
            side=run.side,
            path=str(run.path),
            task=run.task,
            seed=run.seed,
            standing=run.standing.value,
            left_out=left_out,
        )


class ComparisonDocument(ArtifactModel):
    """What ``drivetrain compare --json`` prints."""

    schema_version: Literal[1] = 1
    headline: str
    caveats: tuple[str, ...]
    repetitions: int
    bootstrap_seed: int
    last_share: Number
    sides: tuple[SideDocument, ...]
    pairs: tuple[PairDocument, ...]
    tasks: tuple[TaskDocument, ...]
    settings_that_differ: tuple[DifferenceDocument, ...]
    versions_that_differ: tuple[DifferenceDocument, ...]
    times: tuple[StageTimeDocument, ...]
    runs: tuple[RunDocument, ...]

    @classmethod
    def of(cls, found: Comparison, around: Circumstances) -> Self:
        """All of it."""
        return cls(
            headline=words.headline(found),
            caveats=(*words.caveats(found), *around.notes),
            repetitions=found.options.repetitions,
            bootstrap_seed=found.options.seed,
            last_share=found.options.scoring.last_share,
            sides=tuple(SideDocument.of(one) for one in found.sides),
            pairs=tuple(PairDocument.of(one) for one in found.pairs),
            tasks=tuple(TaskDocument.of(one) for one in found.tasks),
            settings_that_differ=tuple(DifferenceDocument.of(one) for one in around.settings),
            versions_that_differ=tuple(DifferenceDocument.of(one) for one in around.versions),
            times=tuple(StageTimeDocument.of(one) for one in around.times),
            runs=(
                *(RunDocument.of(run) for run in found.runs),
                *(RunDocument.of(one.run, one.why) for one in found.left_out),
            ),
        )
