"""A rank that is ready: the parts of its loop and of its stages, put together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from drivetrain_api.artifacts.stages import RunStages
from drivetrain_trainer.training.assembly import make_evaluator, make_stage_evaluator
from drivetrain_trainer.training.boundaries import TrainingBoundary
from drivetrain_trainer.training.checkpointing import Checkpointer
from drivetrain_trainer.training.course import Course
from drivetrain_trainer.training.evaluation import EvaluationSchedule
from drivetrain_trainer.training.off_policy import LoopSettings, OffPolicyLearner
from drivetrain_trainer.training.phases import PhaseTimeline
from drivetrain_trainer.training.progress import ProgressReporter
from drivetrain_trainer.training.reports import Reports
from drivetrain_trainer.training.stage_evaluation import StageEvaluator
from drivetrain_trainer.training.stage_records import StageRecorder
from drivetrain_trainer.training.stages import StagePlan, Stages, resumed
from drivetrain_trainer.training.staleness import ReplayAges
from drivetrain_trainer.training.stop import StopReason, soak_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_trainer.evidence.checkpoint_manifest import Checkpoint
    from drivetrain_trainer.training.record import RankContext
    from drivetrain_trainer.training.start import Started

log = structlog.get_logger(__name__)


class _Loop:
    """The learner's loop, entered for the training and for its continuation."""

    def __init__(self, context: RankContext, started: Started, parts: _Parts) -> None:
        self._context = context
        self._started = started
        self._parts = parts
        self._timeline = PhaseTimeline(
            started.machinery.trace.tracer, learning=context.supervisor.learning
        )
        self._learner = _learner(context, started, parts.boundary, self._timeline)
        self._soaks = soak_seconds(os.environ)

    def train(self) -> StopReason:
        """Train to a boundary; why it ended, the same on every rank."""
        stop = self._context.stop
        self._context.supervisor.enter_loop(warming_up=self._learner.warming_up)
        if self._soaks is not None and not stop.timed:
            stop.finish_after(self._soaks)
        reason = self._learner.run()
        if self._soaks is not None:  # their clocks differ: what one of them says holds for all
            reason = StopReason(self._started.ranks.greatest(max(reason, stop.reason())))
        return reason

    def retarget(self, env_steps: int) -> None:
        """Train to this step from now on."""
        parts, cursor = self._parts, self._context.record.cursor
        parts.boundary.target_env_steps = env_steps
        parts.boundary.evaluation.retarget(cursor.env_steps, env_steps)
        parts.progress.target_env_steps = env_steps
        parts.progress.write(cursor.iteration, cursor.env_steps, force=True)
        self._started.logger.retarget(env_steps)

    def out_of_time(self) -> bool:
        """Whether the time that the run was given is up on any rank."""
        if self._soaks is None:
            return False
        return bool(self._started.ranks.greatest(int(self._context.stop.finished)))

    def report(self) -> None:
        """Submit what no report has told yet."""
        self._parts.boundary.reports.finish(self._context.record.cursor, self._timeline)


@dataclass(frozen=True)
class _Parts:
    """What aims at the end of a training."""

    progress: ProgressReporter
    boundary: TrainingBoundary


def learn(context: RankContext, started: Started) -> StopReason:
    """Go through the run's stages from the one that it is in; why it ended.

    Raises:
        NonFiniteTrainingError: updates stayed non-finite.
        EvaluationError: the policy, or the task, cannot be evaluated.
    """
    record, ranks = context.record, started.ranks
    stages = _stages(context, started)
    progress = _progress(context, started, stages)
    reports = _reports(context, started, stages, progress)
    if started.restored is not None:
        reports.load_state_dict(started.restored.reports)
    evaluation = _evaluation(context, started, stages, reports)
    checkpoints = _checkpoints(
        context, started, stages, reports=reports, evaluation=evaluation, progress=progress
    )
    tracer, supervisor = started.machinery.trace.tracer, context.supervisor
    boundary = TrainingBoundary(
        stages.state.target_env_steps, evaluation, checkpoints, reports, supervisor, tracer
    )
    started.logger.retarget(stages.state.target_env_steps)
    progress.write(record.cursor.iteration, record.cursor.env_steps, force=True)
    reason = Course(
        stages=stages,
        trainer=_Loop(context, started, _Parts(progress, boundary)),
        boundary=boundary,
        checkpoints=checkpoints,
        evaluator=_stage_evaluator(context, started, stages, reports),
        recorder=_recorder(context, started, stages),
        ranks=ranks,
        life=supervisor,
        cursor=record.cursor,
        tracer=tracer,
    ).run()
    log.info(
        "stopped",
        reason=reason.name.lower(),
        env_steps=record.cursor.env_steps,
        parameters=started.machinery.agent.parameter_hash(),
    )
    return reason


def _stages(context: RankContext, started: Started) -> Stages:
    """The run's stages so far: rank 0 knows them, the others are told."""
    plan, summary = StagePlan.of(context.given), context.record.summary
    text = ""
    if started.ranks.leads:
        text = resumed(
            plan,
            env_steps=context.record.cursor.env_steps,
            kept=started.own_stages,
            told=summary.summary.stages if summary is not None else None,
        ).to_json()
    state = RunStages.from_json(started.ranks.broadcast_text(text))
    return Stages(plan, state, summary=summary)


def _recorder(context: RankContext, started: Started, stages: Stages) -> StageRecorder | None:
    if not started.ranks.leads:
        return None
    recorder = StageRecorder(
        context.given, started.machinery.directory, failed=stages.timings_failed
    )
    recorder.begin(stages.state, from_scratch=started.own_stages is None)
    return recorder


def _stage_evaluator(
    context: RankContext, started: Started, stages: Stages, reports: Reports
) -> StageEvaluator | None:
    if stages.plan.episodes is None:
        return None
    return StageEvaluator(
        evaluator=make_stage_evaluator(context.given) if started.ranks.leads else None,
        policy=started.machinery.agent.policy,
        ranks=started.ranks,
        stop=context.stop,
        announce=reports.evaluated,
    )


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


def _progress(context: RankContext, started: Started, stages: Stages) -> ProgressReporter:
    given, record = context.given, context.record
    scratch = given.scratch if started.ranks.leads else None
    return ProgressReporter(
        path=scratch.progress if scratch is not None else None,
        attempt=given.attempt.attempt,
        target_env_steps=stages.state.target_env_steps,
        checkpoint_env_steps=record.cursor.env_steps if record.checkpoint else None,
    )


def _reports(
    context: RankContext, started: Started, stages: Stages, progress: ProgressReporter
) -> Reports:
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
        trained=lambda: stages.seconds_here,
    )


def _evaluation(
    context: RankContext, started: Started, stages: Stages, reports: Reports
) -> EvaluationSchedule:
    given, restored = context.given, started.restored
    known = [] if restored is None else [restored.best_return]
    if stages.state.verdict is not None:
        known.append(stages.state.verdict.mean_return)
    return EvaluationSchedule(
        given.spec.evaluator,
        evaluator=make_evaluator(given) if started.ranks.leads else None,
        policy=started.machinery.agent.policy,
        ranks=started.ranks,
        start_env_steps=context.record.cursor.env_steps,
        target_env_steps=stages.state.target_env_steps,
        best=max((best for best in known if best is not None), default=None),
        announce=reports.evaluated,
        stage_follows=stages.plan.episodes is not None,
    )


def _checkpoints(
    context: RankContext,
    started: Started,
    stages: Stages,
    *,
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
        stage_state=stages.state_dict,
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
