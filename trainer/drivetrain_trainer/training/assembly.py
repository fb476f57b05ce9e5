"""The parts of a rank, made in order and let go of in the reverse one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from drivetrain_api.compose import derived_seed
from drivetrain_api.metrics import MetricSchema
from drivetrain_trainer.algorithms.sac.agent import SacAgent
from drivetrain_trainer.evaluation.evaluator import Evaluator
from drivetrain_trainer.evidence.checkpoint import CheckpointStore
from drivetrain_trainer.evidence.checkpoint_manifest import CheckpointSubject
from drivetrain_trainer.evidence.run_directory import RunDirectory
from drivetrain_trainer.runtime.collector import CollectorBoot, TaskEnvFactory
from drivetrain_trainer.runtime.replay import make_replay
from drivetrain_trainer.runtime.transport import Transport
from drivetrain_trainer.telemetry.backends.base import BackendContext
from drivetrain_trainer.telemetry.facts import SystemFacts
from drivetrain_trainer.telemetry.logger import TrainingLogger
from drivetrain_trainer.training.mps_status import mps_status
from drivetrain_trainer.training.traces import RankTrace, open_trace

if TYPE_CHECKING:
    from drivetrain_api.artifacts.run_config import RunConfig
    from drivetrain_api.metrics import Family
    from drivetrain_trainer.runtime.devices import ResolvedDevices
    from drivetrain_trainer.runtime.replay import ReplayRing
    from drivetrain_trainer.runtime.settings import RuntimeSettings
    from drivetrain_trainer.training.cleanup import Cleanup
    from drivetrain_trainer.training.inputs import RankInput
    from drivetrain_trainer.training.ranks import Ranks


@dataclass(frozen=True)
class Machinery:
    """What the loop works on."""

    settings: RuntimeSettings
    directory: RunDirectory
    store: CheckpointStore
    agent: SacAgent
    transport: Transport
    replay: ReplayRing
    trace: RankTrace


def assemble(
    given: RankInput,
    ranks: Ranks,
    devices: ResolvedDevices,
    directory: RunDirectory,
    cleanup: Cleanup,
) -> Machinery:
    """Make the learner's side; what must be closed is given to `cleanup`."""
    spec, task = given.spec, given.task
    device = torch.device(devices.learner)
    settings = given.settings
    trace = open_trace(given, ranks.rank, device, directory)
    cleanup.add("close trace", trace.tracer.close)
    transport = Transport.create(
        settings,
        observation_dim=task.observation_dim,
        action_dim=task.action_dim,
        collector_tensors=torch.device(devices.collector_tensor),
    )
    cleanup.add("close transport", transport.close)
    replay = make_replay(
        transport.layout,
        settings.replay_rows,
        device,
        derived_seed(given.algo_seed, f"replay/{ranks.rank}"),
        tracer=trace.tracer,
    )
    cleanup.add("close replay", replay.close)
    return Machinery(
        settings=settings,
        directory=directory,
        store=CheckpointStore(
            directory.checkpoints,
            subject=CheckpointSubject.of(spec, task),
            keep=spec.checkpoint.keep,
            fence=directory.fence,
            world_size=ranks.world_size,
        ),
        agent=SacAgent(
            spec.algo,
            observation_dim=task.observation_dim,
            action_dim=task.action_dim,
            device=device,
            seed=given.algo_seed,
            group=ranks.group,
            tracer=trace.tracer,
        ),
        transport=transport,
        replay=replay,
        trace=trace,
    )


def claim_directory(given: RankInput, ranks: Ranks) -> RunDirectory:
    """The run directory: rank 0 claims it, the others join.

    Raises:
        SpecError: it cannot be written, or belongs to another run.
        FencedError: a newer attempt owns it.
    """
    if not ranks.leads:
        return RunDirectory.join(Path(ranks.broadcast_text("")), given.attempt.attempt)
    directory = RunDirectory.claim(given.attempt, given.storage)
    ranks.broadcast_text(str(directory.path))
    return directory


def seed_globals(given: RankInput, rank: int) -> None:
    """Seed the global Python and Torch generators; NumPy's is nobody's."""
    seed = derived_seed(given.algo_seed, f"global/{rank}")
    random.seed(seed)
    torch.manual_seed(seed)


def collector_boot(
    given: RankInput,
    machinery: Machinery,
    rank: int,
    rng_state: torch.Tensor | None,
    *,
    backend_device: str | None = None,
) -> CollectorBoot:
    """Boot message of this rank's collector.

    Args:
        given: Input of the rank.
        machinery: Its parts.
        rank: Global rank.
        rng_state: Of the environments' generator, to go on from; None starts from the seed.
        backend_device: Accelerator of the physics backend; None for one in host memory.
    """
    spec, transport = given.spec, machinery.transport
    return CollectorBoot(
        env_factory=TaskEnvFactory(
            spec.task, spec.sim, spec.training.sim_threads, backend_device or "cpu"
        ),
        seed=given.env_seed(f"collector/{rank}"),
        transport=transport,
        metrics_interval=machinery.settings.collector_metrics_interval,
        rng_state=rng_state,
        trace=machinery.trace.collector,
        max_invalid_row_share=spec.training.max_invalid_row_share,
    )


def make_evaluator(given: RankInput) -> Evaluator | None:
    """The evaluator beside training, where the run asks for one."""
    spec = given.spec
    if spec.evaluator.interval is None and not spec.evaluator.eval_before_train:
        return None
    return _evaluator(given, spec.evaluator.episodes, given.env_seed("evaluator"))


def make_stage_evaluator(given: RankInput) -> Evaluator | None:
    """The evaluator after training, on episodes of its own, where the run asks for one."""
    episodes = given.spec.evaluator.stage_episodes
    if episodes is None:
        return None
    return _evaluator(given, episodes, given.env_seed("evaluator/after training"))


def _evaluator(given: RankInput, episodes: int, seed: int) -> Evaluator:
    spec = given.spec
    return Evaluator(
        given.task,
        episodes=episodes,
        seed=seed,
        sim=spec.sim,
        overrides=spec.task.overrides,
        num_threads=spec.training.sim_threads,
    )


def open_logger(
    given: RankInput,
    ranks: Ranks,
    device: torch.device,
    directory: RunDirectory,
    *,
    env_steps: int,
    run_config: RunConfig | None,
    families: tuple[Family, ...] = (),
    shared: bool = False,
) -> TrainingLogger:
    """The training logger; rank 0's has backends and terminal, and needs `run_config`.

    `families` are those of the environments' own metrics; `shared` says that the run asked for
    CUDA MPS, and it was seen in use.

    Raises:
        SpecError: for a backend that cannot be made.
    """
    context = BackendContext(
        directory=directory.path,
        spec=given.spec,
        facts=_facts(given, ranks, device, directory, env_steps, shared=shared),
        start_env_steps=env_steps,
        attempt=given.attempt.attempt,
        run_config=run_config.model_dump(mode="json") if run_config is not None else {},
    )
    return TrainingLogger.open(
        context,
        rank=ranks.rank,
        world_size=ranks.world_size,
        group=ranks.group,
        schema=MetricSchema().declaring(families),
    )


def _facts(
    given: RankInput,
    ranks: Ranks,
    device: torch.device,
    directory: RunDirectory,
    env_steps: int,
    *,
    shared: bool,
) -> SystemFacts:
    spec = given.spec
    return SystemFacts(
        run_name=directory.path.name,
        algo=spec.algo.name,
        task=spec.task.name,
        sim=spec.sim,
        num_envs=spec.algo.num_envs,
        batch_per_rank=spec.algo.batch_size,
        updates_per_iteration=spec.algo.updates_per_step,
        ranks=ranks.world_size,
        gpus=ranks.world_size if device.type == "cuda" else 0,
        buffer_capacity=spec.algo.replay_rows,
        mps=mps_status(cuda=device.type == "cuda", validated=shared),
        target_env_steps=given.target_env_steps,
        start_env_steps=env_steps,
    )
