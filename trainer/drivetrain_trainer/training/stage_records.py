"""The stages of a run in timings.json: recorded by rank 0, and never a reason to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from drivetrain_api.experiment import RunStage, stage_name
from drivetrain_api.timings.store import TimingsDirectory, TimingsError
from drivetrain_trainer.evidence.run_directory import artifact_directory
from drivetrain_trainer.timings import record_timing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from drivetrain_api.artifacts.stages import RunStages
    from drivetrain_trainer.evidence.run_directory import RunDirectory
    from drivetrain_trainer.training.inputs import RankInput

log = structlog.get_logger(__name__)

LOCK_PATIENCE_SECONDS: Final = 3.0
"""For another writer of a file: the other ranks wait for this one meanwhile."""
_REFUSALS: Final = (TimingsError, OSError)
"""A file that is refused, or cannot be read or written."""


class StageRecorder:
    """Rank 0's; the other ranks have none.

    A run of its own is run 0 of its own invocation: that of its UID, which outlives attempts.
    """

    def __init__(
        self, given: RankInput, directory: RunDirectory, *, failed: Callable[[str | None], None]
    ) -> None:
        """Touch nothing yet.

        Args:
            given: Input of the rank.
            directory: The claimed run directory.
            failed: Told which stages are not recorded and why, or None where all are.
        """
        experiment = given.spec.experiment
        self._fence = directory.fence
        self._path = artifact_directory(given.spec, directory.path)
        self._algo = given.spec.algo.name
        self._run_idx = 0 if experiment is None else experiment.run_idx
        self._invocation = given.attempt.uid if experiment is None else experiment.invocation
        self._label = f"seed {given.spec.seed}"
        self._failed = failed
        self._unwritten: dict[str, str] = {}
        """What is not in the files as it should be, and why."""

    def begin(self, state: RunStages, *, from_scratch: bool) -> None:
        """Forget what this run is about to do again: all of it, where it starts from scratch."""
        stages = None if from_scratch else self._ahead(state)
        self._fence.check()
        try:
            self._store().forget(self._run_idx, self._invocation, stages)
        except Exception as error:  # noqa: BLE001  # whatever it is, no training ends for it
            self._tell("stale records stay", error)

    def record(self, stage: RunStage, seconds: float, *, continued: bool) -> None:
        """Record a stage right after it; what goes wrong is told, not raised.

        Raises:
            FencedError: a newer attempt owns the run directory.
        """
        name = stage_name(stage, self._algo, continued=continued)
        self._fence.check()
        try:
            record_timing(
                self._path,
                name,
                seconds,
                run_idx=self._run_idx,
                label=self._label,
                invocation=self._invocation,
                lock_patience=LOCK_PATIENCE_SECONDS,
            )
        except Exception as error:  # noqa: BLE001  # as above
            self._tell(name, error)
        else:
            self._unwritten.pop(name, None)
            self._failed(self._reasons())
            log.info("stage done", stage=name, seconds=round(seconds, 3))

    def lacks(self, stage: RunStage, *, continued: bool) -> bool:
        """Whether this run's record of a stage is missing where it could be written."""
        name = stage_name(stage, self._algo, continued=continued)
        try:
            found = self._store().load().timings.root.get(name)
        except _REFUSALS:
            return False
        return found is None or not any(
            run.run_idx == self._run_idx and run.invocation == self._invocation
            for run in found.runs
        )

    def _ahead(self, state: RunStages) -> Collection[str]:
        """Stages that the run has not come to, or will do again."""
        done: list[tuple[RunStage, bool]] = []
        for continued, over, evaluation in (
            (False, state.continued or state.training_over, state.evaluation),
            (True, state.continued and state.training_over, state.evaluation_auto_resume),
        ):
            if over:
                done += [(RunStage.TRAIN, continued), (RunStage.CHECKPOINT_SAVE, continued)]
            if evaluation is not None:
                done.append((RunStage.EVALUATION, continued))
        return {
            stage_name(stage, self._algo, continued=continued)
            for stage in RunStage
            for continued in (False, True)
            if (stage, continued) not in done
        }

    def _tell(self, what: str, error: Exception) -> None:
        log.warning("timings not written", stage=what, reason=str(error))
        self._unwritten[what] = str(error)
        self._failed(self._reasons())

    def _reasons(self) -> str | None:
        """In words; a reason that several have in common is told once."""
        by_reason: dict[str, list[str]] = {}
        for what, reason in self._unwritten.items():
            by_reason.setdefault(reason, []).append(what)
        told = [f"{', '.join(whats)}: {reason}" for reason, whats in by_reason.items()]
        return "; ".join(told) or None

    def _store(self) -> TimingsDirectory:
        return TimingsDirectory(self._path, lock_patience=LOCK_PATIENCE_SECONDS)
