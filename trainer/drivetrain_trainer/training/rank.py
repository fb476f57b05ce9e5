"""One rank of a run: set up, train, and tell the end honestly."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import structlog
import torch

from drivetrain_api.artifacts.outcome import RankOutcome, RunStatus
from drivetrain_api.artifacts.run_config import ActiveTerm, RunConfig
from drivetrain_api.artifacts.shutdown import LifePhase
from drivetrain_api.atomic import write_text_atomically
from drivetrain_api.errors import SpecError
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.notices import without_effect
from drivetrain_api.training import COMPILING_SIMULATORS
from drivetrain_trainer.algorithms.precision import resolve_precision
from drivetrain_trainer.algorithms.sac.agent import NonFiniteTrainingError
from drivetrain_trainer.evidence.checkpoint_catalog import Preference, resolve_checkpoint
from drivetrain_trainer.evidence.checkpoint_manifest import CheckpointError, CheckpointSubject
from drivetrain_trainer.evidence.fence import FencedError
from drivetrain_trainer.evidence.run_config import write_run_config
from drivetrain_trainer.evidence.run_summary import SummaryWriter
from drivetrain_trainer.launcher.life import LifeMark
from drivetrain_trainer.runtime.faults import StopRequestedError
from drivetrain_trainer.training.assembly import (
    Machinery,
    assemble,
    claim_directory,
    collector_boot,
    make_evaluator,
    open_logger,
    seed_globals,
)
from drivetrain_trainer.training.boundaries import TrainingBoundary
from drivetrain_trainer.training.checkpointing import Checkpointer, Restored, restore
from drivetrain_trainer.training.devices import rank_devices
from drivetrain_trainer.training.evaluation import EvaluationSchedule
from drivetrain_trainer.training.manifest import begin_manifest, rank_budget
from drivetrain_trainer.training.memory import check_free_device
from drivetrain_trainer.training.off_policy import LoopSettings, OffPolicyLearner
from drivetrain_trainer.training.phases import PhaseTimeline
from drivetrain_trainer.training.process_sharing import Processes, open_sharing
from drivetrain_trainer.training.progress import ProgressReporter
from drivetrain_trainer.training.ranks import Ranks, join_ranks, named
from drivetrain_trainer.training.reports import Reports, note_telemetry
from drivetrain_trainer.training.schedule import Cursor
from drivetrain_trainer.training.staleness import ReplayAges
from drivetrain_trainer.training.stop import StopReason, soak_seconds
from drivetrain_trainer.training.supervisor import RankSupervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from drivetrain_api.artifacts.shutdown import ShutdownReport
    from drivetrain_api.metrics import Family
    from drivetrain_trainer.evidence.checkpoint_manifest import Checkpoint
    from drivetrain_trainer.launcher.scratch import Scratch
    from drivetrain_trainer.runtime.collector import CollectorProcess
    from drivetrain_trainer.runtime.devices import ResolvedDevices
    from drivetrain_trainer.runtime.transport import Transport
    from drivetrain_trainer.telemetry.logger import TrainingLogger
    from drivetrain_trainer.training.inputs import RankInput
    from drivetrain_trainer.training.manifest import ManifestWriter
    from drivetrain_trainer.training.process_sharing import ProcessSharing
    from drivetrain_trainer.training.stop import StopSignal

log = structlog.get_logger(__name__)

_STATUS = {
    ExitCode.DONE: RunStatus.COMPLETED,
    ExitCode.CHECKPOINTED: RunStatus.INTERRUPTED,
}


class Rank:
    """Trains; what it has learnt of itself so far is there for the outcome at any moment."""

    def __init__(
        self,
        given: RankInput,
        collector: CollectorProcess,
        stop: StopSignal,
        supervisor: RankSupervisor,
    ) -> None:
        self.cursor = Cursor()
        self.checkpoint: str | None = None
        self.summary: SummaryWriter | None = None
        self._given = given
        self._collector = collector
        self._stop = stop
        self._supervisor = supervisor
        self._run_config: RunConfig | None = None
        self._logger: TrainingLogger | None = None
        self._manifest: ManifestWriter | None = None
        self._transport: Transport | None = None
        self._sharing: ProcessSharing | None = None

    def end_telemetry(self) -> None:
        """Write what backends still have to, within a bound, and tell the summary how it went."""
        if self._logger is None:
            return
        counts = self._logger.close()
        if self.summary is not None:
            note_telemetry(self.summary, counts)
            with _told_where_unwritten():
                self.summary.write()

    def end_manifest(self, shutdown: ShutdownReport, *, reached_end: bool) -> None:
        """The last counters and the way it ended, for the summary's last write."""
        manifest, transport = self._manifest, self._transport
        if manifest is None:
            return
        if transport is not None and self._logger is not None:
            manifest.note(ingress=transport.ingress.counters())
            self._transport = None  # it may be closed where the end is told again
        manifest.complete(shutdown=shutdown.model_dump(mode="json"), reached_end=reached_end)

    def train(self) -> StopReason:
        """Set up, train, finish at a boundary; why it ended.

        Raises:
            SpecError, CheckpointError: the run cannot be started as it is.
            NonFiniteTrainingError: updates stayed non-finite.
            StopRequestedError: asked to stop before the first boundary.
        """
        given = self._given
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        devices = rank_devices(given, local_rank)
        device = torch.device(devices.learner)
        ranks = join_ranks(device, self._stop.interrupt)
        cleanup = self._supervisor.cleanup
        cleanup.add("leave process group", ranks.close)
        self._supervisor.know(cursor=self.cursor, ranks=ranks)
        seed_globals(given, ranks.rank)
        directory = claim_directory(given, ranks)
        if ranks.leads:
            self.summary = SummaryWriter.start(directory, given.spec)
            for notice in without_effect(given.spec):
                log.warning("setting is without effect", key=notice.path, reason=notice.message)
        budget = rank_budget(given, devices)
        self._manifest = begin_manifest(given, devices, budget, self.summary)
        check_free_device(given, devices, budget, ranks)
        self._sharing = open_sharing(given.spec, devices, rank=ranks.rank)
        if self._sharing is not None:
            self._manifest.note(sharing=self._sharing.evidence)
        machinery = assemble(given, ranks, devices, directory, cleanup)
        self._transport = machinery.transport
        self._supervisor.know(transport=machinery.transport, replay=machinery.replay)
        if self.summary is not None and machinery.trace.directory is not None:
            self.summary.note(trace_path=str(machinery.trace.directory))
        restored = self._restore(machinery, ranks)
        families = self._start_collector(machinery, ranks, restored, devices)
        self._logger = logger = cleanup.enter(
            "close telemetry",
            open_logger(
                given,
                ranks,
                device,
                directory,
                env_steps=self.cursor.env_steps,
                run_config=self._run_config,
                families=families,
                shared=self._sharing is not None and self._sharing.evidence.validated,
            ),
        )
        return self._learn(machinery, ranks, logger, restored)

    def _restore(self, machinery: Machinery, ranks: Ranks) -> Restored | None:
        """Go on from the newest sound checkpoint, else from the one that the manifest names."""
        found = ""
        if ranks.leads:
            machinery.store.sweep()
            checkpoint = machinery.store.recover() or self._asked_for()
            found = str(checkpoint.path) if checkpoint is not None else ""
        found = ranks.broadcast_text(found)
        if not found:
            return None
        checkpoint = resolve_checkpoint(self._given.storage / found, Preference.LATEST)
        restored = restore(
            checkpoint, agent=machinery.agent, replay=machinery.replay, rank=ranks.rank
        )
        self.cursor = restored.cursor
        self._supervisor.know(cursor=self.cursor)
        self.checkpoint = found
        log.info("resumed", checkpoint=found, env_steps=restored.cursor.env_steps)
        return restored

    def _asked_for(self) -> Checkpoint | None:
        given = self._given
        if given.spec.checkpoint.resume_from is None:
            return None
        return resolve_checkpoint(
            given.storage / given.spec.checkpoint.resume_from,
            Preference.LATEST,
            CheckpointSubject.of(given.spec, given.task),
        )

    def _start_collector(
        self,
        machinery: Machinery,
        ranks: Ranks,
        restored: Restored | None,
        devices: ResolvedDevices,
    ) -> tuple[Family, ...]:
        """Boot it and wait for its environments; the families of their own metrics."""
        given = self._given
        state = restored.env_rng_state if restored is not None else None
        self._collector.boot(
            collector_boot(given, machinery, ranks.rank, state, backend_device=devices.backend),
            flow=machinery.trace.flow(machinery.transport),
        )
        machinery.replay.attach(self._collector.ingress)
        if given.spec.sim in COMPILING_SIMULATORS:
            log.info(
                "compiling kernels: minutes on a first start, then from the cache",
                sim=given.spec.sim.value,
                timeout_s=machinery.settings.start_timeout_s,
            )
        ready = self._collector.await_ready(
            machinery.settings.start_timeout_s, interrupt=self._stop.interrupt
        )
        if self._manifest is not None and ready.diagnostics is not None:
            self._manifest.note(diagnostics=ready.diagnostics)
        self._confirm_sharing()
        if ranks.leads:
            device = torch.device(devices.learner)
            self._run_config = write_run_config(
                machinery.directory,
                given.attempt,
                given.spec,
                given.task,
                resolved_devices=devices.evidence(),
                resolved_precision=resolve_precision(given.spec.algo.precision, device),
                terms=[ActiveTerm.model_validate(asdict(term)) for term in ready.terms],
                families=ready.log_families,
            )
        log.info("collector ready", seconds=round(ready.start_s, 2), **devices.evidence())
        return ready.log_families

    def _confirm_sharing(self) -> None:
        """Both processes use the GPU by now: that they share it as the run asks, else refused."""
        if self._sharing is None or self._manifest is None:
            return
        try:
            self._sharing.confirm(
                Processes(os.getpid(), self._collector.pid), interrupt=self._stop.interrupt
            )
        finally:
            self._manifest.note(sharing=self._sharing.evidence)

    def _learn(
        self,
        machinery: Machinery,
        ranks: Ranks,
        logger: TrainingLogger,
        restored: Restored | None,
    ) -> StopReason:
        progress = self._progress(ranks)
        reports = self._reports(machinery, ranks, logger, progress)
        if restored is not None:
            reports.load_state_dict(restored.reports)
        evaluation = self._evaluation(machinery, ranks, reports, restored)
        checkpoints = self._checkpoints(machinery, ranks, reports, evaluation, progress)
        tracer = machinery.trace.tracer
        supervisor = self._supervisor
        timeline = PhaseTimeline(tracer, learning=supervisor.learning)
        learner = OffPolicyLearner(
            LoopSettings.of(
                machinery.settings,
                ranks.world_size,
                grace_seconds=self._given.spec.grace_period_seconds,
            ),
            agent=machinery.agent,
            collector=self._collector,
            replay=machinery.replay,
            boundary=TrainingBoundary(
                self._given.target_env_steps, evaluation, checkpoints, reports, supervisor, tracer
            ),
            stop=self._stop,
            cursor=self.cursor,
            timeline=timeline,
            flow=machinery.trace.flow(machinery.transport),
        )
        progress.write(self.cursor.iteration, self.cursor.env_steps, force=True)
        supervisor.enter_loop(warming_up=learner.warming_up)
        seconds = soak_seconds(os.environ)
        if seconds is not None:
            self._stop.finish_after(seconds)
        reason = learner.run()
        if seconds is not None:  # their clocks differ, so what one of them says holds for all
            reason = StopReason(ranks.greatest(max(reason, self._stop.reason())))
        supervisor.enter_finish()
        if checkpoints.saved_env_steps != self.cursor.env_steps:
            with supervisor.during(LifePhase.CHECKPOINT), tracer.span("Checkpoint"):
                checkpoints.save(self.cursor)
        reports.finish(self.cursor, timeline)
        log.info(
            "stopped",
            reason=reason.name.lower(),
            env_steps=self.cursor.env_steps,
            parameters=machinery.agent.parameter_hash(),
        )
        return reason

    def _progress(self, ranks: Ranks) -> ProgressReporter:
        scratch = self._given.scratch if ranks.leads else None
        return ProgressReporter(
            path=scratch.progress if scratch is not None else None,
            attempt=self._given.attempt.attempt,
            target_env_steps=self._given.target_env_steps,
            checkpoint_env_steps=self.cursor.env_steps if self.checkpoint else None,
        )

    def _reports(
        self,
        machinery: Machinery,
        ranks: Ranks,
        logger: TrainingLogger,
        progress: ProgressReporter,
    ) -> Reports:
        return Reports(
            logger,
            interval=self._given.spec.training.log_interval,
            agent=machinery.agent,
            collector=self._collector,
            transport=machinery.transport,
            replay=machinery.replay,
            progress=progress,
            summary=self.summary,
            ages=ReplayAges.of(machinery.settings),
            group=ranks.group,
            manifest=self._manifest,
        )

    def _evaluation(
        self, machinery: Machinery, ranks: Ranks, reports: Reports, restored: Restored | None
    ) -> EvaluationSchedule:
        return EvaluationSchedule(
            self._given.spec.evaluator,
            evaluator=make_evaluator(self._given) if ranks.leads else None,
            policy=machinery.agent.policy,
            ranks=ranks,
            start_env_steps=self.cursor.env_steps,
            target_env_steps=self._given.target_env_steps,
            best=restored.best_return if restored is not None else None,
            announce=reports.evaluated,
        )

    def _checkpoints(
        self,
        machinery: Machinery,
        ranks: Ranks,
        reports: Reports,
        evaluation: EvaluationSchedule,
        progress: ProgressReporter,
    ) -> Checkpointer:
        config = self._given.spec.checkpoint
        return Checkpointer(
            machinery.store,
            interval=config.interval,
            start_env_steps=self.cursor.env_steps,
            save_replay=config.save_replay,
            agent=machinery.agent,
            replay=machinery.replay,
            snapshot=self._collector.snapshot,
            ranks=ranks,
            report_state=reports.state_dict,
            best_return=lambda: evaluation.best,
            committed=self._note_checkpoint(progress),
        )

    def _note_checkpoint(self, progress: ProgressReporter) -> Callable[[Checkpoint, bool], None]:
        def committed(checkpoint: Checkpoint, best: bool) -> None:  # noqa: FBT001 - a callback
            self.checkpoint = str(checkpoint.path)
            progress.checkpoint_env_steps = checkpoint.env_steps
            if self.summary is not None:
                self.summary.note(last_checkpoint=self.checkpoint)
                if best:
                    self.summary.note(best_checkpoint=self.checkpoint)
                self.summary.write()

        return committed


def run_rank(given: RankInput, collector: CollectorProcess, stop: StopSignal) -> ExitCode:
    """Train as this rank; the summary and the outcome say how it ended, whatever happened."""
    number = int(os.environ.get("RANK", "0"))
    mark = LifeMark(given.scratch.life(number) if given.scratch is not None else None)
    supervisor = RankSupervisor(
        collector, stop, grace_seconds=given.spec.grace_period_seconds, mark=mark
    )
    rank = Rank(given, collector, stop, supervisor)
    end = _live(rank, supervisor)
    supervisor.take_down_collector()
    # Told before backends and ranks are waited for: a launcher that loses patience may kill
    # this process from now on.
    _tell(given.scratch, rank, end, supervisor.report())
    told = len(supervisor.cleanup.errors)
    rank.end_telemetry()
    supervisor.cleanup.close()
    if len(supervisor.cleanup.errors) > told:
        _tell(given.scratch, rank, end, supervisor.report())
    supervisor.log()
    return end.code


@dataclass(frozen=True)
class _End:
    """How the rank's life ended."""

    code: ExitCode
    error: BaseException | None = None


def _live(rank: Rank, supervisor: RankSupervisor) -> _End:
    """Train, and tell the supervisor why it ended."""
    try:
        reason = rank.train()
    except StopRequestedError:
        supervisor.stopped()
        return _End(ExitCode.CHECKPOINTED)
    except (Exception, SystemExit) as failure:  # an exit() in a task's code must not be silent
        error = named(failure)
        if supervisor.stopped_in_start_up(error):
            supervisor.stopped()
            return _End(ExitCode.CHECKPOINTED)
        supervisor.failed(error)
        code = _code_of(error)
        if code is ExitCode.FAILED:
            log.exception("training failed")
        return _End(code, error)
    if reason.complete:
        supervisor.completed()
        return _End(ExitCode.DONE)
    supervisor.stopped()
    return _End(ExitCode.CHECKPOINTED)


def _code_of(error: BaseException) -> ExitCode:
    if isinstance(error, (SpecError, CheckpointError)):
        return ExitCode.REFUSED
    return ExitCode.BROKEN if isinstance(error, NonFiniteTrainingError) else ExitCode.FAILED


@contextmanager
def _told_where_unwritten() -> Iterator[None]:
    """A newer attempt owns the summary, the disk is full, or it is none that a reader would take.

    The outcome counts all the same.
    """
    try:
        yield
    except (FencedError, OSError, ValueError) as unwritten:
        log.warning("run summary not written", reason=str(unwritten))


def _tell(scratch: Scratch | None, rank: Rank, end: _End, shutdown: ShutdownReport) -> None:
    """Write summary and outcome; again, where the way out brought further errors."""
    status = _STATUS.get(end.code, RunStatus.FAILED)
    with _told_where_unwritten():
        rank.end_manifest(shutdown, reached_end=status is RunStatus.COMPLETED)
        if rank.summary is not None:
            rank.summary.finish(status, end.error)
    number = int(os.environ.get("RANK", "0"))
    outcome = RankOutcome(
        rank=number,
        exit_code=int(end.code),
        status=status,
        error_type=type(end.error).__name__ if end.error is not None else None,
        error=str(end.error)[:4096] if end.error is not None else None,
        env_steps=rank.cursor.env_steps,
        checkpoint=rank.checkpoint,
        shutdown=shutdown,
    )
    if scratch is not None:
        _write_outcome(scratch.outcome(number), outcome)


def _write_outcome(path: Path, outcome: RankOutcome) -> None:
    """Write it, or write it again as of the first time: that is when the rank ended."""
    first = path.stat().st_mtime if path.exists() else None
    write_text_atomically(path, outcome.to_json())
    if first is not None:
        os.utime(path, (first, first))
