"""A rank's way from its spec to a collector that is ready and parts that can learn."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import torch

from drivetrain_api.artifacts.run_config import ActiveTerm, RunConfig
from drivetrain_api.notices import without_effect
from drivetrain_api.training import COMPILING_SIMULATORS
from drivetrain_trainer.algorithms.precision import resolve_precision
from drivetrain_trainer.evidence.checkpoint_catalog import Preference, resolve_checkpoint
from drivetrain_trainer.evidence.checkpoint_manifest import CheckpointSubject
from drivetrain_trainer.evidence.run_config import write_run_config
from drivetrain_trainer.evidence.run_summary import SummaryWriter
from drivetrain_trainer.training.assembly import (
    Machinery,
    assemble,
    claim_directory,
    collector_boot,
    open_logger,
    seed_globals,
)
from drivetrain_trainer.training.checkpointing import Restored, restore
from drivetrain_trainer.training.devices import rank_devices
from drivetrain_trainer.training.manifest import begin_manifest, rank_budget
from drivetrain_trainer.training.memory import check_free_device
from drivetrain_trainer.training.process_sharing import Processes, open_sharing
from drivetrain_trainer.training.ranks import Ranks, join_ranks

if TYPE_CHECKING:
    from drivetrain_api.artifacts.stages import RunStages
    from drivetrain_trainer.evidence.checkpoint_manifest import Checkpoint
    from drivetrain_trainer.evidence.run_directory import RunDirectory
    from drivetrain_trainer.runtime.collector import CollectorReady
    from drivetrain_trainer.runtime.devices import ResolvedDevices
    from drivetrain_trainer.telemetry.logger import TrainingLogger
    from drivetrain_trainer.training.process_sharing import ProcessSharing
    from drivetrain_trainer.training.record import RankContext

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Started:
    """A rank that can begin to learn."""

    machinery: Machinery
    ranks: Ranks
    logger: TrainingLogger
    own: bool
    """Whether it goes on from a checkpoint of its own."""
    restored: Restored | None
    """What it goes on from; None where it starts from scratch."""

    @property
    def own_stages(self) -> RunStages | None:
        """The run's stages in its own checkpoint; one of another run knows nothing of them."""
        return self.restored.stages if self.restored is not None and self.own else None


def start(context: RankContext) -> Started:
    """Join the others, claim the run directory, make the parts, and wait for the collector.

    Raises:
        SpecError, CheckpointError: the run cannot be started as it is.
        StopRequestedError: asked to stop before it was ready.
    """
    given, supervisor, record = context.given, context.supervisor, context.record
    devices = rank_devices(given, int(os.environ.get("LOCAL_RANK", "0")))
    device = torch.device(devices.learner)
    ranks = join_ranks(device, context.stop.interrupt)
    cleanup = supervisor.cleanup
    cleanup.add("leave process group", ranks.close)
    supervisor.know(cursor=record.cursor, ranks=ranks)
    seed_globals(given, ranks.rank)
    directory = claim_directory(given, ranks)
    if ranks.leads:
        record.summary = SummaryWriter.start(directory, given.spec)
        for notice in without_effect(given.spec):
            log.warning("setting is without effect", key=notice.path, reason=notice.message)
    budget = rank_budget(given, devices)
    record.manifest = begin_manifest(given, devices, budget, record.summary)
    check_free_device(given, devices, budget, ranks)
    sharing = open_sharing(given.spec, devices, rank=ranks.rank)
    if sharing is not None:
        record.manifest.note(sharing=sharing.evidence)
    machinery = assemble(given, ranks, devices, directory, cleanup)
    record.transport = machinery.transport
    supervisor.know(transport=machinery.transport, replay=machinery.replay)
    if record.summary is not None and machinery.trace.directory is not None:
        record.summary.note(trace_path=str(machinery.trace.directory))
    restored = _restore(context, machinery, ranks)
    ready = _start_collector(context, machinery, ranks, restored, devices)
    _confirm_sharing(context, sharing)
    run_config = _run_config(context, machinery, devices, ready) if ranks.leads else None
    log.info("collector ready", seconds=round(ready.start_s, 2), **devices.evidence())
    record.logger = logger = cleanup.enter(
        "close telemetry",
        open_logger(
            given,
            ranks,
            device,
            directory,
            env_steps=record.cursor.env_steps,
            run_config=run_config,
            families=ready.log_families,
            shared=sharing is not None and sharing.evidence.validated,
        ),
    )
    own = record.checkpoint is not None and _is_own(Path(record.checkpoint), directory)
    return Started(machinery, ranks, logger, own, restored)


def _restore(context: RankContext, machinery: Machinery, ranks: Ranks) -> Restored | None:
    """Go on from the newest sound checkpoint, else from the one that the manifest names."""
    record = context.record
    found = ""
    if ranks.leads:
        machinery.store.sweep()
        checkpoint = machinery.store.recover() or _asked_for(context)
        found = str(checkpoint.path) if checkpoint is not None else ""
    found = ranks.broadcast_text(found)
    if not found:
        return None
    checkpoint = resolve_checkpoint(context.given.storage / found, Preference.LATEST)
    restored = restore(
        checkpoint,
        agent=machinery.agent,
        replay=machinery.replay,
        rank=ranks.rank,
        sim=context.given.spec.sim,
    )
    record.cursor = restored.cursor
    context.supervisor.know(cursor=record.cursor)
    record.checkpoint = found
    log.info("resumed", checkpoint=found, env_steps=restored.cursor.env_steps)
    return restored


def _is_own(checkpoint: Path, directory: RunDirectory) -> bool:
    return checkpoint.parent.resolve() == directory.checkpoints.resolve()


def _asked_for(context: RankContext) -> Checkpoint | None:
    given = context.given
    if given.spec.checkpoint.resume_from is None:
        return None
    return resolve_checkpoint(
        given.storage / given.spec.checkpoint.resume_from,
        Preference.LATEST,
        CheckpointSubject.of(given.spec, given.task),
    )


def _start_collector(
    context: RankContext,
    machinery: Machinery,
    ranks: Ranks,
    restored: Restored | None,
    devices: ResolvedDevices,
) -> CollectorReady:
    """Boot it and wait for its environments."""
    given, collector, manifest = context.given, context.collector, context.record.manifest
    state = restored.env_rng_state if restored is not None else None
    collector.boot(
        collector_boot(given, machinery, ranks.rank, state, backend_device=devices.backend),
        flow=machinery.trace.flow(machinery.transport),
    )
    machinery.replay.attach(collector.ingress)
    if given.spec.sim in COMPILING_SIMULATORS:
        log.info(
            "compiling kernels: minutes on a first start, then from the cache",
            sim=given.spec.sim.value,
            timeout_s=machinery.settings.start_timeout_s,
        )
    ready = collector.await_ready(
        machinery.settings.start_timeout_s, interrupt=context.stop.interrupt
    )
    if manifest is not None and ready.diagnostics is not None:
        manifest.note(diagnostics=ready.diagnostics)
    return ready


def _confirm_sharing(context: RankContext, sharing: ProcessSharing | None) -> None:
    """Both processes use the GPU by now: that they share it as the run asks, else refused."""
    manifest = context.record.manifest
    if sharing is None or manifest is None:
        return
    try:
        sharing.confirm(
            Processes(os.getpid(), context.collector.pid), interrupt=context.stop.interrupt
        )
    finally:
        manifest.note(sharing=sharing.evidence)


def _run_config(
    context: RankContext, machinery: Machinery, devices: ResolvedDevices, ready: CollectorReady
) -> RunConfig:
    given = context.given
    return write_run_config(
        machinery.directory,
        given.attempt,
        given.spec,
        given.task,
        resolved_devices=devices.evidence(),
        resolved_precision=resolve_precision(
            given.spec.algo.precision, torch.device(devices.learner)
        ),
        terms=[ActiveTerm.model_validate(asdict(term)) for term in ready.terms],
        families=ready.log_families,
    )
