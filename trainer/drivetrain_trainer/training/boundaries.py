"""Evaluation, checkpoints, metric reports and the end of a run, at the loop's boundaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_api.artifacts.shutdown import LifePhase
from drivetrain_trainer.tracing import NULL_TRACER
from drivetrain_trainer.training.stop import StopReason

if TYPE_CHECKING:
    from drivetrain_trainer.tracing import Tracer
    from drivetrain_trainer.training.checkpointing import Checkpointer
    from drivetrain_trainer.training.evaluation import EvaluationOutcome, EvaluationSchedule
    from drivetrain_trainer.training.phases import PhaseTimeline
    from drivetrain_trainer.training.reports import Reports
    from drivetrain_trainer.training.schedule import Cursor
    from drivetrain_trainer.training.supervisor import RankSupervisor


@dataclass
class TrainingBoundary:
    """The boundary of a real run: every rank visits, rank 0 evaluates and decides."""

    target_env_steps: int
    evaluation: EvaluationSchedule
    checkpoints: Checkpointer
    reports: Reports
    life: RankSupervisor
    tracer: Tracer = NULL_TRACER
    _best: tuple[int, float] | None = None
    """Step and mean return of the latest evaluation that was the best."""

    def due(self, env_steps: int) -> bool:
        """Whether to evaluate, checkpoint or end at this step; a checkpoint may come of each."""
        return (
            env_steps >= self.target_env_steps
            or self.checkpoints.due(env_steps)
            or self.evaluation.due(env_steps)
        )

    def visit(self, cursor: Cursor) -> StopReason:
        """Evaluate and checkpoint where due; the reason to stop here, the same on every rank."""
        outcome = self._evaluate(cursor)
        if outcome is not None and outcome.best:
            self._best = (cursor.env_steps, outcome.mean)
        reason = self._end(cursor, outcome)
        if reason is StopReason.NONE:  # else the save that follows the training is of this step
            if outcome is not None and outcome.best:
                self._save(cursor, evaluated_return=outcome.mean)
            elif self.checkpoints.due(cursor.env_steps):
                self._save(cursor)
        return reason

    def best_at(self, env_steps: int) -> float | None:
        """The mean return at this step, where that was the best evaluation so far."""
        return self._best[1] if self._best is not None and self._best[0] == env_steps else None

    def report(self, cursor: Cursor, timeline: PhaseTimeline) -> None:
        """Submit metrics every log interval, and keep the progress file fresh."""
        with self.tracer.span("Report"):
            self.reports.iteration_done(cursor, timeline)

    def _end(self, cursor: Cursor, outcome: EvaluationOutcome | None) -> StopReason:
        if outcome is not None and outcome.target_reached:
            return StopReason.TARGET
        return StopReason.DONE if cursor.env_steps >= self.target_env_steps else StopReason.NONE

    def _evaluate(self, cursor: Cursor) -> EvaluationOutcome | None:
        if not self.evaluation.due(cursor.env_steps):
            return None
        with self.life.during(LifePhase.EVALUATION), self.tracer.span("Evaluation"):
            return self.evaluation.visit(cursor)

    def _save(self, cursor: Cursor, *, evaluated_return: float | None = None) -> None:
        with self.life.during(LifePhase.CHECKPOINT), self.tracer.span("Checkpoint"):
            self.checkpoints.save(cursor, evaluated_return=evaluated_return)
