"""Options that contradict one another, though each is valid by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drivetrain_api.algorithms import CriticKind
from drivetrain_api.base import INT64_MAX
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.loggers import UnknownLoggerError, logger_entry_point
from drivetrain_api.mps import parse_memory_limits
from drivetrain_api.soak import UNSOAKABLE, unsoakable
from drivetrain_api.tasks import TaskSpec
from drivetrain_api.training import (
    AVAILABLE_SIMULATORS,
    HOST_BRIDGE_SIMULATORS,
    NO_LOGGER,
    CollectorTensorDevice,
    Simulator,
    TrainingConfig,
    logger_names,
)
from drivetrain_api.trainingrun import MpsMode, TrainingRunSpec

ALTERNATIVES: Final = (("training", ("total_env_steps", "iterations")),)
"""Section and keys of which at most one is set; a choice in one layer of the composition
displaces the others in the layers below."""


def manifest_violations(spec: TrainingRunSpec) -> Iterator[Violation]:
    """What is wrong whatever a task's presets add; needs no task."""
    yield from _simulator(spec)
    yield from _length(spec.training)
    yield from _devices(spec)
    yield from _process_sharing(spec)
    yield from _run_directory(spec.training)
    yield from _loggers(spec.training)
    yield from _storage(spec)
    yield from _mps(spec)
    yield from _soak(spec)


def composed_violations(spec: TrainingRunSpec, task: TaskSpec) -> Iterator[Violation]:
    """What is wrong once defaults, presets and manifest are one."""
    yield from manifest_violations(spec)
    if spec.sim not in task.simulators:
        offered = task.runs_on(spec.sim)
        yield Violation("sim", f"task {task.name} runs on {offered}; got {spec.sim}")
    if spec.training.total_env_steps is None and spec.training.iterations is None:
        yield Violation(
            "training.total_env_steps",
            f"set it, or training.iterations: task {task.name} has no preset length "
            f"for {spec.algo.name}",
        )
    yield from _unbridged(spec, task)
    yield from _absent_loggers(spec.training)
    yield from _overrides(spec, task)
    yield from _step_axis(spec)
    yield from _evaluator(spec)
    yield from _replay(spec)
    yield from _critic(spec)


def env_steps_per_iteration(spec: TrainingRunSpec) -> int:
    """Environment steps of one learner iteration over all ranks."""
    return spec.algo.num_envs * spec.training.env_steps_per_sync * spec.topology.world_size


def _simulator(spec: TrainingRunSpec) -> Iterator[Violation]:
    if spec.sim not in AVAILABLE_SIMULATORS:
        offered = ", ".join(sorted(AVAILABLE_SIMULATORS))
        yield Violation("sim", f"{spec.sim} is not available in this release; available: {offered}")


def _length(training: TrainingConfig) -> Iterator[Violation]:
    if training.total_env_steps is not None and training.iterations is not None:
        yield Violation(
            "training.iterations",
            f"{training.iterations} contradicts training.total_env_steps "
            f"{training.total_env_steps}: set one of the two",
        )


def _devices(spec: TrainingRunSpec) -> Iterator[Violation]:
    wanted, learner = spec.training.collector_tensor_device, spec.training.device
    if wanted is CollectorTensorDevice.CUDA and learner in ("cpu", "mps"):
        yield Violation(
            "training.collector_tensor_device",
            f"cuda contradicts training.device {learner}: use auto or cpu with a learner "
            "outside CUDA",
        )
        return
    resolved = _residency(spec)
    given = spec.env.collector_tensor_device
    if resolved is not None and given is not None and not _agrees(given, resolved):
        yield Violation(
            "env.collector_tensor_device",
            f"{given} contradicts {resolved}, which training.collector_tensor_device {wanted} "
            "resolves to: leave it out",
        )


def _agrees(given: str, resolved: str) -> bool:
    """Whether two labels can be of one device; one without an index is of any."""
    (kind, _, index), (other, _, other_index) = given.partition(":"), resolved.partition(":")
    return kind == other and (not index or not other_index or int(index) == int(other_index))


def _residency(spec: TrainingRunSpec) -> str | None:
    """Where a host bridge's collector tensors live, as far as the configuration alone tells."""
    if spec.sim not in HOST_BRIDGE_SIMULATORS:
        return None
    wanted, learner = spec.training.collector_tensor_device, spec.training.device
    if wanted is CollectorTensorDevice.CPU:
        return "cpu"
    if learner == "auto":
        return "cuda" if wanted is CollectorTensorDevice.CUDA else None
    return learner if learner.startswith("cuda") else "cpu"


def collector_residency(spec: TrainingRunSpec, task: TaskSpec) -> str | None:
    """The value of ``env.collector_tensor_device`` that the configuration alone decides.

    None where the machine, or a backend that the task brings, decides.
    """
    return _residency(spec) if task.backend is None else None


def _unbridged(spec: TrainingRunSpec, task: TaskSpec) -> Iterator[Violation]:
    wanted = spec.training.collector_tensor_device
    if (
        task.backend is None
        and spec.sim not in HOST_BRIDGE_SIMULATORS
        and wanted is CollectorTensorDevice.CUDA
    ):
        offered = ", ".join(sorted(HOST_BRIDGE_SIMULATORS))
        yield Violation(
            "training.collector_tensor_device",
            f"cuda asks a host bridge ({offered}) to carry tensors there; those of {spec.sim} "
            "lie on its own device: use auto",
        )


def _process_sharing(spec: TrainingRunSpec) -> Iterator[Violation]:
    path, wanted = "training.cuda_process_sharing", spec.training.cuda_process_sharing
    if wanted is None:
        return
    if spec.sim is not Simulator.MJWARP:
        yield Violation(
            path, f"{wanted} is for sim {Simulator.MJWARP}; got {spec.sim}: leave it out"
        )
    elif spec.topology.world_size > 1:
        yield Violation(
            path, f"{wanted} is for a single rank; topology has {spec.topology.world_size}"
        )
    elif spec.training.device in ("cpu", "mps"):
        yield Violation(
            path, f"{wanted} needs a CUDA learner; training.device is {spec.training.device}"
        )


def _run_directory(training: TrainingConfig) -> Iterator[Violation]:
    if training.log_root is not None and training.log_dir is not None:
        yield Violation(
            "training.log_dir",
            f"{training.log_dir} contradicts training.log_root {training.log_root}: "
            "log_dir is the run directory itself, so set one of the two",
        )


def _loggers(training: TrainingConfig) -> Iterator[Violation]:
    names = logger_names(training.logger)
    if NO_LOGGER in names:
        yield Violation(
            "training.logger",
            f"{training.logger}: {NO_LOGGER} stands alone; leave it out, or the others",
        )
        return
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        yield Violation("training.logger", f"{training.logger} names {', '.join(twice)} twice")


def _absent_loggers(training: TrainingConfig) -> Iterator[Violation]:
    for name in logger_names(training.logger):
        try:
            logger_entry_point(name)
        except UnknownLoggerError as error:
            yield Violation("training.logger", str(error))


def _storage(spec: TrainingRunSpec) -> Iterator[Violation]:
    storage = spec.storage
    kinds = [
        name
        for name, chosen in (
            ("storage.claim_name", storage.claim_name is not None),
            ("storage.size", storage.size is not None),
            ("storage.empty_dir", bool(storage.empty_dir)),
        )
        if chosen
    ]
    if len(kinds) > 1:
        yield Violation("storage", f"{' and '.join(kinds)} contradict each other: set one of them")
    if storage.storage_class_name is not None and storage.size is None:
        yield Violation(
            "storage.storage_class_name",
            f"{storage.storage_class_name} needs storage.size: it is the class of a claim "
            "made for this run",
        )


def _mps(spec: TrainingRunSpec) -> Iterator[Violation]:
    mps, gpus = spec.accelerator.mps, spec.accelerator.gpus_per_node
    if mps.mode is MpsMode.DISABLED:
        for name in ("active_thread_percentage", "pinned_memory_limit"):
            if getattr(mps, name) is not None:
                yield Violation(
                    f"accelerator.mps.{name}",
                    f"{getattr(mps, name)} needs accelerator.mps.mode InContainer or External; "
                    "got Disabled",
                )
    elif gpus == 0:
        yield Violation(
            "accelerator.mps.mode",
            f"{mps.mode} needs accelerator.gpus_per_node of at least 1; got 0",
        )
    else:
        try:
            parse_memory_limits(mps.pinned_memory_limit, gpus)
        except ValueError as error:
            yield Violation("accelerator.mps.pinned_memory_limit", str(error))


def _soak(spec: TrainingRunSpec) -> Iterator[Violation]:
    if spec.soak is not None and spec.algo.name in UNSOAKABLE:
        yield Violation("soak", unsoakable(spec.algo.name))


def _overrides(spec: TrainingRunSpec, task: TaskSpec) -> Iterator[Violation]:
    try:
        task.resolve_overrides(spec.task.overrides)
    except SpecError as error:
        yield from error.violations


def _step_axis(spec: TrainingRunSpec) -> Iterator[Violation]:
    iterations = spec.training.iterations
    per_iteration = env_steps_per_iteration(spec)
    if iterations is not None and iterations > INT64_MAX // per_iteration:
        yield Violation(
            "training.iterations",
            f"must be at most {INT64_MAX // per_iteration} with {per_iteration} environment "
            f"steps an iteration; got {iterations}",
        )


def _evaluator(spec: TrainingRunSpec) -> Iterator[Violation]:
    if spec.evaluator.target is not None and spec.evaluator.interval is None:
        yield Violation(
            "evaluator.target",
            f"{spec.evaluator.target} needs evaluator.interval: without it nothing is "
            "evaluated during training",
        )


def _replay(spec: TrainingRunSpec) -> Iterator[Violation]:
    algo = spec.algo
    slot_rows = spec.training.replay_ingress_slot_rows
    if slot_rows is not None and slot_rows > algo.num_envs:
        yield Violation(
            "training.replay_ingress_slot_rows",
            f"must be from 1 to algo.num_envs ({algo.num_envs}); got {slot_rows}",
        )
    if algo.batch_size > algo.replay_rows:
        yield Violation(
            "algo.batch_size",
            f"must be at most algo.replay_rows ({algo.replay_rows}); got {algo.batch_size}",
        )
    warm_up = max(1, algo.learning_starts) * algo.num_envs
    if warm_up > algo.replay_rows:
        yield Violation(
            "algo.replay_rows",
            f"must be at least {warm_up}, the rows before the first update (algo.learning_starts "
            f"{algo.learning_starts} x algo.num_envs {algo.num_envs}, at least one tick); "
            f"got {algo.replay_rows}",
        )


def _critic(spec: TrainingRunSpec) -> Iterator[Violation]:
    algo = spec.algo
    if algo.critic is CriticKind.C51 and algo.v_min >= algo.v_max:
        yield Violation(
            "algo.v_min",
            f"must be below algo.v_max ({algo.v_max}) with the c51 critic; got {algo.v_min}",
        )
