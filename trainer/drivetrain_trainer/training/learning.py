"""A rank that is ready: the parts of its loop, the training, and its last checkpoint."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog

from drivetrain_api.artifacts.shutdown import LifePhase
from drivetrain_trainer.training.assembly import make_evaluator
from drivetrain_trainer.training.boundaries import TrainingBoundary
from drivetrain_trainer.training.checkpointing import Checkpointer
from drivetrain_trainer.training.evaluation import EvaluationSchedule
from drivetrain_trainer.training.off_policy import LoopSettings, OffPolicyLearner
from drivetrain_trainer.training.phases import PhaseTimeline
from drivetrain_trainer.training.progress import ProgressReporter
from drivetrain_trainer.training.reports import Reports
from drivetrain_trainer.training.staleness import ReplayAges
from drivetrain_trainer.training.stop import StopReason, soak_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_trainer.evidence.checkpoint_manifest import Checkpoint
    from drivetrain_trainer.training.record import RankContext
    from drivetrain_trainer.training.start import Started

log = structlog.get_logger(__name__)


def learn(context: RankContext, started: Started) -> StopReason:
    """Train to a boundary and checkpoint there; why it ended.

    Raises:
        NonFiniteTrainingError: updates stayed non-finite.
    """
    record, supervisor, stop = context.record, context.supervisor, context.stop
    machinery, ranks = started.machinery, started.ranks
    progress = _progress(context, started)
    reports = _reports(context, started, progress)
    if started.restored is not None:
        reports.load_state_dict(started.restored.reports)
    evaluation = _evaluation(context, started, reports)
    checkpoints = _checkpoints(context, started, reports, evaluation, progress)
    tracer = machinery.trace.tracer
    timeline = PhaseTimeline(tracer, learning=supervisor.learning)
    boundary = TrainingBoundary(
        context.given.target_env_steps, evaluation, checkpoints, reports, supervisor, tracer
    )
    learner = _learner(context, started, boundary, timeline)
    progress.write(record.cursor.iteration, record.cursor.env_steps, force=True)
    supervisor.enter_loop(warming_up=learner.warming_up)
    seconds = soak_seconds(os.environ)
    if seconds is not None:
        stop.finish_after(seconds)
    reason = learner.run()
    if seconds is not None:  # their clocks differ, so what one of them says holds for all
        reason = StopReason(ranks.greatest(max(reason, stop.reason())))
    supervisor.enter_finish()
    if checkpoints.saved_env_steps != record.cursor.env_steps:
        with supervisor.during(LifePhase.CHECKPOINT), tracer.span("Checkpoint"):
            checkpoints.save(record.cursor)
    reports.finish(record.cursor, timeline)
    log.info(
        "stopped",
        reason=reason.name.lower(),
        env_steps=record.cursor.env_steps,
        parameters=machinery.agent.parameter_hash(),
    )
    return reason


def _learner(
    context: RankContext, started: Started, boundary: TrainingBoundary, timeline: PhaseTimeline
) -> OffPolicyLearner:
    machinery = started.machinery
    return OffPolicyLearner(
        LoopSettings.of(
            machinery.settings,
            started.ranks.world_size,
            grace_seconds=context.given.spec.grace_period_seconds,
        ),
        agent=machinery.agent,
        collector=context.collector,
        replay=machinery.replay,
        boundary=boundary,
        stop=context.stop,
        cursor=context.record.cursor,
        timeline=timeline,
        flow=machinery.trace.flow(machinery.transport),
    )


def _progress(context: RankContext, started: Started) -> ProgressReporter:
    given, record = context.given, context.record
    scratch = given.scratch if started.ranks.leads else None
    return ProgressReporter(
        path=scratch.progress if scratch is not None else None,
        attempt=given.attempt.attempt,
        target_env_steps=given.target_env_steps,
        checkpoint_env_steps=record.cursor.env_steps if record.checkpoint else None,
    )


def _reports(context: RankContext, started: Started, progress: ProgressReporter) -> Reports:
    machinery, record = started.machinery, context.record
    return Reports(
        started.logger,
        interval=context.given.spec.training.log_interval,
        agent=machinery.agent,
        collector=context.collector,
        transport=machinery.transport,
        replay=machinery.replay,
        progress=progress,
        summary=record.summary,
        ages=ReplayAges.of(machinery.settings),
        group=started.ranks.group,
        manifest=record.manifest,
    )


def _evaluation(context: RankContext, started: Started, reports: Reports) -> EvaluationSchedule:
    given, restored = context.given, started.restored
    return EvaluationSchedule(
        given.spec.evaluator,
        evaluator=make_evaluator(given) if started.ranks.leads else None,
        policy=started.machinery.agent.policy,
        ranks=started.ranks,
        start_env_steps=context.record.cursor.env_steps,
        target_env_steps=given.target_env_steps,
        best=restored.best_return if restored is not None else None,
        announce=reports.evaluated,
    )


def _checkpoints(
    context: RankContext,
    started: Started,
    reports: Reports,
    evaluation: EvaluationSchedule,
    progress: ProgressReporter,
) -> Checkpointer:
    config, machinery = context.given.spec.checkpoint, started.machinery
    return Checkpointer(
        machinery.store,
        interval=config.interval,
        start_env_steps=context.record.cursor.env_steps,
        save_replay=config.save_replay,
        agent=machinery.agent,
        replay=machinery.replay,
        snapshot=context.collector.snapshot,
        ranks=started.ranks,
        report_state=reports.state_dict,
        best_return=lambda: evaluation.best,
        committed=_note_checkpoint(context, progress),
    )


def _note_checkpoint(
    context: RankContext, progress: ProgressReporter
) -> Callable[[Checkpoint, bool], None]:
    record = context.record

    def committed(checkpoint: Checkpoint, best: bool) -> None:  # noqa: FBT001 - a callback
        record.checkpoint = str(checkpoint.path)
        progress.checkpoint_env_steps = checkpoint.env_steps
        if record.summary is not None:
            record.summary.note(last_checkpoint=record.checkpoint)
            if best:
                record.summary.note(best_checkpoint=record.checkpoint)
            record.summary.write()

    return committed
