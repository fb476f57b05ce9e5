"""A run as a comparison reads it: how it stands, its curves, and what it was run with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_trainer.analysis.rows import FileChangedError
from drivetrain_trainer.analysis.runs import RunFolder, RunFolderError, Series
from drivetrain_trainer.analysis.schema_check import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from drivetrain_api.artifacts.run_config import RunConfig
    from drivetrain_api.artifacts.run_summary import RunSummary
    from drivetrain_api.artifacts.suite_record import SuiteMember
    from drivetrain_trainer.analysis.comparison.inputs import Found

EVALUATED: Final = "eval-rollout/reward"
TRAINING: Final = "Train/mean_reward"
_ITERATION: Final = "Train/iteration"
_UNREADABLE: Final = (RunFolderError, SchemaError, FileChangedError, OSError)
_NOT_SETTINGS: Final = ("run", "schema_version")
_MANY: Final = 10
"""From so many runs on their reading is told of, so many times at most."""


class Standing(StrEnum):
    """How far a run has come."""

    COMPLETED = "completed"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    WAITING = "waiting"
    """A member that has not begun, or waits to go on."""
    UNREADABLE = "unreadable"
    NOT_COUNTED = "not counted"
    """Below a suite's root, and not what its record names."""


_OF_STATE: Final = {
    MemberState.PENDING: Standing.WAITING,
    MemberState.RUNNING: Standing.RUNNING,
    MemberState.SUSPENDED: Standing.WAITING,
    MemberState.COMPLETE: Standing.UNREADABLE,
    MemberState.FAILED: Standing.FAILED,
}
"""Of a member without a run directory."""
_OF_STATUS: Final = {
    RunStatus.COMPLETED: Standing.COMPLETED,
    RunStatus.RUNNING: Standing.RUNNING,
    RunStatus.INTERRUPTED: Standing.INTERRUPTED,
    RunStatus.FAILED: Standing.FAILED,
}


@dataclass(frozen=True)
class ComparedRun:
    """A run of a side."""

    side: str
    path: Path
    task: str
    standing: Standing
    reason: str | None = None
    """Why it is not complete, as far as it is known."""
    algo: str | None = None
    seed: int | None = None
    run_idx: int | None = None
    """Index of its seed in its experiment."""
    evaluated: Series | None = None
    """Evaluated return over environment steps, finite values alone; None without any."""
    training: Series | None = None
    """Mean return of the last 100 training episodes, likewise."""
    began: float = 0.0
    """Wall time of the first report."""
    summary: RunSummary | None = field(default=None, repr=False)
    config: RunConfig | None = field(default=None, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Path of each setting -> its value in words."""
    damage: tuple[str, ...] = ()
    """What was read around."""

    @property
    def complete(self) -> bool:
        """Whether it has run to its end."""
        return self.standing is Standing.COMPLETED

    @property
    def counted(self) -> bool:
        """Whether it is what its suite counts, and not what a later start replaced."""
        return self.standing is not Standing.NOT_COUNTED

    @property
    def has_curve(self) -> bool:
        """Whether there is anything to compare."""
        return self.evaluated is not None or self.training is not None

    @property
    def budget(self) -> int | None:
        """Environment steps that it was to do; None where it does not say."""
        return None if self.config is None else self.config.training.total_env_steps

    @property
    def target(self) -> float | None:
        """Evaluated return at which it is done."""
        return None if self.config is None else self.config.evaluator.target


def read_runs(found: Sequence[Found], tell: Callable[[str], None]) -> list[ComparedRun]:
    """Read all, in the order of sides, tasks and seeds.

    What cannot be read is no error here, but a run that stands as unreadable.
    """
    sides = {side: place for place, side in enumerate(dict.fromkeys(one.side for one in found))}
    runs = []
    for number, one in enumerate(found, start=1):
        if len(found) >= _MANY and number % -(-len(found) // _MANY) == 0:
            tell(f"reading {number} of {len(found)}: {one.path}")
        runs.append(_read(one))
    return sorted(
        runs,
        key=lambda run: (sides[run.side], run.task, run.seed or 0, str(run.path)),
    )


def _read(found: Found) -> ComparedRun:
    member = found.member
    if found.not_counted is not None:
        return _blank(found, Standing.NOT_COUNTED, found.not_counted)
    if member is not None and not found.path.exists():
        return _without_directory(found, member)
    try:
        folder = RunFolder.open(found.path)
        metrics = folder.metrics((EVALUATED, TRAINING, _ITERATION))
        summary, config = folder.summary, folder.config
        raw = folder.raw_config or {}
    except _UNREADABLE as error:
        return _blank(found, Standing.UNREADABLE, str(error))
    if summary is None:
        return _blank(found, Standing.UNREADABLE, f"{folder.summary_path} is not there")
    standing, reason = _standing(summary, member)
    experiment = None if config is None else config.experiment
    return ComparedRun(
        side=found.side,
        path=found.path,
        task=str(summary.task),
        standing=standing,
        reason=reason,
        algo=str(summary.algo.value),
        seed=summary.seeds.run,
        run_idx=experiment.run_idx if experiment else member.run_idx if member else None,
        evaluated=_finite(metrics.by_tag.get(EVALUATED)),
        training=_finite(metrics.by_tag.get(TRAINING)),
        began=min((float(one.wall_times[0]) for one in metrics.by_tag.values()), default=0.0),
        summary=summary,
        config=config,
        settings=_flat({k: v for k, v in raw.items() if k not in _NOT_SETTINGS}),
        damage=metrics.damage,
    )


def _without_directory(found: Found, member: SuiteMember) -> ComparedRun:
    standing = _OF_STATE[member.state]
    missing = "its run directory is not there"
    words = {Standing.WAITING: "not begun", Standing.UNREADABLE: missing}
    return _blank(found, standing, member.reason or words.get(standing, missing))


def _blank(found: Found, standing: Standing, reason: str) -> ComparedRun:
    member = found.member
    if member is None:
        return ComparedRun(found.side, found.path, "?", standing, reason)
    return ComparedRun(
        found.side,
        found.path,
        member.task,
        standing,
        reason,
        algo=str(member.algo.value),
        seed=member.seed,
        run_idx=member.run_idx,
    )


def _standing(summary: RunSummary, member: SuiteMember | None) -> tuple[Standing, str | None]:
    """The run's own word, but a failure that its suite has seen."""
    error = ": ".join(part for part in (summary.error_type, summary.error) if part) or None
    if member is not None and member.state is MemberState.FAILED:
        return Standing.FAILED, member.reason or error
    standing = _OF_STATUS[summary.status]
    if standing is Standing.COMPLETED:
        return standing, None
    return standing, error or (member.reason if member else None)


def _finite(series: Series | None) -> Series | None:
    if series is None:
        return None
    kept = np.isfinite(series.values)
    if not kept.any():
        return None
    return Series(series.steps[kept], series.wall_times[kept], series.values[kept])


def _flat(content: Mapping[str, object], above: str = "") -> dict[str, str]:
    """Leaves of a mapping by their path; lists are leaves."""
    found: dict[str, str] = {}
    for key, value in content.items():
        path = f"{above}{key}"
        if isinstance(value, dict):
            found |= _flat(value, f"{path}.")
        else:
            found[path] = value if isinstance(value, str) else json.dumps(value)
    return found
