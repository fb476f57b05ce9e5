"""What a new record does to those before it: the replacement rules, as pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.timings.model import Stage, Timings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from drivetrain_api.timings.model import StageRun


def recorded(timings: Timings, stage: str, run: StageRun) -> Timings:
    """`timings` with one more record.

    A run without `run_idx` replaces its stage. Index 0 resets the stage: only records of the
    same invocation stay, so that members which ran beside it and ended first are not lost;
    without an invocation nothing stays. A later index is added, or replaces the same index;
    where it names an invocation, records of other invocations go, because a stage never
    mixes two of them. Other stages are left alone.

    Args:
        timings: The records so far.
        stage: Name of the stage.
        run: The new record.
    """
    before = timings.root[stage].runs if stage in timings.root else ()
    kept = [] if run.run_idx is None else [old for old in before if _stays(old, run)]
    return _with(timings, stage, [*kept, run])


def retained(timings: Timings, completed: Collection[int], invocation: str | None) -> Timings:
    """`timings` with the records of validated completed runs alone: `resume_partial_runs`.

    A stage without an index belongs to no completed run, so it goes and is measured anew; a
    stage that nothing is left of goes with it.

    Args:
        timings: The records so far.
        completed: Indices of the runs that were validated as complete; in an experiment that
            runs one after the other they are a prefix.
        invocation: The one that is resumed; records of others go. None takes any.
    """
    stages = {
        name: [
            run
            for run in stage.runs
            if run.run_idx in completed and invocation in (None, run.invocation)
        ]
        for name, stage in timings.root.items()
    }
    return Timings(
        root={name: _same_or_new(timings.root[name], runs) for name, runs in stages.items() if runs}
    )


def forgotten(
    timings: Timings,
    run_idx: int,
    invocation: str | None,
    stages: Collection[str] | None = None,
) -> Timings:
    """`timings` without what a run is about to do again; a stage that nothing is left of goes.

    Args:
        timings: The records so far.
        run_idx: Index of the run, whose own records go.
        invocation: The one that it belongs to.
        stages: What it does again. None where it starts from scratch: then its records go in
            every stage, and index 0, with which an invocation begins, takes those of other
            invocations with it.
    """

    def goes(stage: str, run: StageRun) -> bool:
        if stages is not None:
            return stage in stages and run.run_idx == run_idx
        return run.run_idx == run_idx or (run_idx == 0 and run.invocation != invocation)

    left = {
        name: [run for run in stage.runs if not goes(name, run)]
        for name, stage in timings.root.items()
    }
    return Timings(
        root={name: _same_or_new(timings.root[name], runs) for name, runs in left.items() if runs}
    )


def _stays(old: StageRun, new: StageRun) -> bool:
    if old.run_idx is None or old.run_idx == new.run_idx:
        return False
    if new.invocation is None:
        return new.run_idx != 0
    return old.invocation == new.invocation


def _with(timings: Timings, stage: str, runs: Iterable[StageRun]) -> Timings:
    ordered = sorted(runs, key=lambda run: -1 if run.run_idx is None else run.run_idx)
    return Timings.model_validate({**timings.root, stage: Stage.of(ordered)})


def _same_or_new(stage: Stage, runs: list[StageRun]) -> Stage:
    return stage if len(runs) == len(stage.runs) else Stage.of(runs)
