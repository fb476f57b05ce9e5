"""A run's stages, one after the other: train, save, evaluate, and once more where that missed.

Every rank takes the same course. Rank 0 records each stage in timings.json right after it.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog

from drivetrain_api.artifacts.shutdown import LifePhase
from drivetrain_api.experiment import RunStage
from drivetrain_trainer.tracing import NULL_TRACER
from drivetrain_trainer.training.stop import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivetrain_trainer.tracing import Tracer
    from drivetrain_trainer.training.boundaries import TrainingBoundary
    from drivetrain_trainer.training.checkpointing import Checkpointer
    from drivetrain_trainer.training.ranks import Ranks
    from drivetrain_trainer.training.schedule import Cursor
    from drivetrain_trainer.training.stage_evaluation import StageEvaluator
    from drivetrain_trainer.training.stage_records import StageRecorder
    from drivetrain_trainer.training.stages import Stages
    from drivetrain_trainer.training.supervisor import RankSupervisor

log = structlog.get_logger(__name__)


class Trainer(Protocol):
    """The loop, to be entered once for each training."""

    def train(self) -> StopReason:
        """Train to a boundary; why it ended, the same on every rank."""

    def retarget(self, env_steps: int) -> None:
        """Train to this step from now on."""

    def out_of_time(self) -> bool:
        """Whether the run's time is up on any rank, so that nothing is to be continued."""

    def report(self) -> None:
        """Submit what no report has told yet."""


@dataclass
class Course:
    """What the stages of a run work with."""

    stages: Stages
    trainer: Trainer
    boundary: TrainingBoundary
    checkpoints: Checkpointer
    evaluator: StageEvaluator | None
    """None where the run has no evaluation after training."""
    recorder: StageRecorder | None
    """Rank 0's."""
    ranks: Ranks
    life: RankSupervisor
    cursor: Cursor
    tracer: Tracer = NULL_TRACER

    def run(self) -> StopReason:
        """Go on from the stage that the run is in; why it ended."""
        reason = self._follow()
        self.trainer.report()
        return reason

    def _follow(self) -> StopReason:
        while True:
            if self.stages.state.training_over:
                reason = StopReason.DONE
                self._make_up_for_records()
            else:
                reason = self._train()
            if not reason.complete or self.evaluator is None:
                return reason
            if self.stages.evaluation is None and not self._evaluate(self.evaluator):
                return StopReason.SIGNAL
            if not self.stages.continues:
                return self._verdict(reason)
            if self.trainer.out_of_time():
                log.warning("threshold missed, and no time is left to continue the training")
                return reason
            target = self.stages.continue_from(self.cursor.env_steps)
            self.stages.write()
            self.trainer.retarget(target)
            log.info("threshold missed: training goes on, once", target_env_steps=target)

    def _train(self) -> StopReason:
        """Train, and save at the end, whether the training or only the attempt is over."""
        with self.stages.training():
            reason = self.trainer.train()
        self.life.enter_finish()
        if reason.complete:
            self.stages.training_ended()
            self._record(RunStage.TRAIN, self.stages.seconds)
            self._save()
        elif self.checkpoints.saved_env_steps != self.cursor.env_steps:
            with self._phase(LifePhase.CHECKPOINT, "Checkpoint"):
                self.checkpoints.save(self.cursor)
        self.trainer.report()
        return reason

    def _save(self) -> None:
        began = time.monotonic()
        with self._phase(LifePhase.CHECKPOINT, "Checkpoint"):
            best = self.boundary.best_at(self.cursor.env_steps)
            self.checkpoints.save(self.cursor, evaluated_return=best)
        self._record(RunStage.CHECKPOINT_SAVE, time.monotonic() - began)

    def _make_up_for_records(self) -> None:
        """An attempt may have ended between a stage and its record: all ranks agree on it."""
        self.life.enter_finish()
        if self.stages.evaluation is not None:
            return
        if self._lacks(RunStage.TRAIN):
            self._record(RunStage.TRAIN, self.stages.seconds)
        (unsaved,) = self.ranks.broadcast([float(self._lacks(RunStage.CHECKPOINT_SAVE))])
        if unsaved:
            self._save()

    def _evaluate(self, evaluator: StageEvaluator) -> bool:
        """Evaluate and decide; False where a stop came first."""
        began = time.monotonic()
        with self._phase(LifePhase.EVALUATION, "Evaluation"):
            mean = evaluator.run(self.cursor)
        if mean is None:
            return False
        self._record(RunStage.EVALUATION, time.monotonic() - began)
        episodes = self.stages.plan.episodes
        assert episodes is not None, "there is an evaluator"
        self.stages.evaluated(self.cursor.env_steps, mean, episodes)
        best = self.boundary.evaluation.take(mean)
        self.checkpoints.evaluated(self.cursor, mean, best=best)
        self.stages.write()
        return True

    def _verdict(self, reason: StopReason) -> StopReason:
        if self.stages.state.threshold_missed:
            verdict = self.stages.state.verdict
            assert verdict is not None, "it missed"
            log.warning(
                "threshold missed after the continuation as well",
                mean=verdict.mean_return,
                threshold=verdict.threshold,
            )
        return reason

    @contextmanager
    def _phase(self, phase: LifePhase, name: str) -> Iterator[None]:
        with self.life.during(phase), self.tracer.span(name):
            yield

    def _lacks(self, stage: RunStage) -> bool:
        continued = self.stages.state.continued
        return self.recorder is not None and self.recorder.lacks(stage, continued=continued)

    def _record(self, stage: RunStage, seconds: float) -> None:
        if self.recorder is not None:
            self.recorder.record(stage, seconds, continued=self.stages.state.continued)
