"""What is checked before a rank starts, so that a refusal costs no start of Torch.

Everything here is refused for good (exit code 2): another attempt would find the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from drivetrain_api import budget
from drivetrain_api.atomic import UnreadableFileError, read_bounded
from drivetrain_api.attempt import AttemptSpec
from drivetrain_api.compose import compose, resolve_task
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.labels import ENV_SPEC_FILE
from drivetrain_api.machine import cuda_devices, free_shared_memory
from drivetrain_api.memory import AvailableMemory, MemoryCgroup
from drivetrain_api.refusals import violations_of
from drivetrain_trainer.evidence.checkpoint_catalog import (
    CheckpointCatalog,
    Preference,
    resolve_checkpoint,
)
from drivetrain_trainer.evidence.checkpoint_manifest import CheckpointError, CheckpointSubject
from drivetrain_trainer.evidence.run_directory import (
    CHECKPOINTS,
    check_writable,
    find_run_directory,
)
from drivetrain_trainer.hardware.device_memory import roomiest_device
from drivetrain_trainer.launcher.mps.control import MpsError
from drivetrain_trainer.launcher.mps.start import check_mps
from drivetrain_trainer.physics.capabilities import capabilities_of
from drivetrain_trainer.runtime.devices import (
    DeviceInventory,
    learner_devices,
    resolve_devices,
)
from drivetrain_trainer.runtime.memory_room import MemoryRoom
from drivetrain_trainer.runtime.settings import RuntimeSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drivetrain_api.tasks import TaskSpec
    from drivetrain_api.trainingrun import TrainingRunSpec

SPEC_LIMIT: Final = 1 << 20
"""Bytes of a run.json; a ConfigMap holds no more."""
MIB: Final = 1 << 20
MPS_MODE: Final = "accelerator.mps.mode"
NCCL_SHARED_BYTES: Final = 64 * MIB
"""What NCCL's transport between the ranks of a pod takes of /dev/shm, for each rank."""


@dataclass(frozen=True)
class Machine:
    """What the pod has; asked of the kernel by `of_pod`."""

    available_bytes: int
    """Memory that may still be used."""
    memory_source: str
    """Where that figure comes from."""
    shared_bytes: int
    """Free bytes of /dev/shm."""
    gpus: int
    """CUDA devices that a rank would see."""
    gpu_source: str
    """Where that figure comes from."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Environment of the pod."""
    hip: bool = False
    """Whether its CUDA devices are AMD's."""
    device_memory: AvailableMemory | None = None
    """Most free memory of any of them; None where no driver tells."""

    @classmethod
    def of_pod(cls, environ: Mapping[str, str], root: Path = Path("/")) -> Machine:
        """Ask the kernel.

        Args:
            environ: Environment of the pod.
            root: Where ``proc``, ``sys`` and ``dev`` lie; another folder in tests alone.
        """
        memory, devices = MemoryCgroup(root).available(), cuda_devices(environ, root)
        return cls(
            available_bytes=memory.bytes,
            memory_source=memory.source,
            shared_bytes=free_shared_memory(root / "dev/shm"),
            gpus=len(devices.visible),
            gpu_source=devices.searched,
            environ=environ,
            hip=devices.hip,
            device_memory=roomiest_device(root) if devices.visible else None,
        )

    def figures(self) -> dict[str, object]:
        """For the log: what a refusal, or a kill, is later explained by."""
        return {
            "memory_mib": self.available_bytes // MIB,
            "memory_source": self.memory_source,
            "shared_memory_mib": self.shared_bytes // MIB,
            "gpus": self.gpus,
        }


@dataclass(frozen=True)
class CheckedRun:
    """A run that nothing speaks against."""

    spec: TrainingRunSpec
    """Composed."""
    task: TaskSpec


def read_attempt(path: Path) -> AttemptSpec:
    """The attempt that a ``run.json`` describes.

    Raises:
        SpecError: it is missing, too large, or a value in it is refused.
    """
    try:
        # A file of a mounted ConfigMap is a link; nothing in the pod can write there.
        return AttemptSpec.model_validate_json(read_bounded(path.resolve(), SPEC_LIMIT))
    except FileNotFoundError:
        raise _refused(ENV_SPEC_FILE, f"{path} is not there") from None
    except UnreadableFileError as error:
        raise _refused(ENV_SPEC_FILE, str(error)) from error
    except ValidationError as error:
        raise SpecError(violations_of(error)) from None


def check_run(attempt: AttemptSpec, storage: Path, machine: Machine) -> CheckedRun:
    """Compose the run, and check that this pod can carry it.

    Raises:
        SpecError: everything that speaks against it, each with its path.
    """
    task = resolve_task(attempt.spec)
    spec = compose(attempt.spec, task)
    checks: tuple[Callable[[], None], ...] = (
        lambda: _check_overrides(spec, task),
        lambda: check_writable(attempt, storage),
        lambda: _check_resume(attempt, spec, task, storage),
        lambda: _check_settings(spec),
        lambda: _check_gpus(spec, task, machine),
        lambda: _check_mps(spec, machine),
        lambda: _check_memory(spec, task, machine),
        lambda: _check_shared_memory(spec, machine),
    )
    found: list[Violation] = []
    for check in checks:
        try:
            check()
        except SpecError as error:
            found += error.violations
    if found:
        raise SpecError(tuple(found))
    return CheckedRun(spec, task)


def _check_overrides(spec: TrainingRunSpec, task: TaskSpec) -> None:
    task.resolve_overrides(spec.task.overrides)


def _check_resume(
    attempt: AttemptSpec, spec: TrainingRunSpec, task: TaskSpec, storage: Path
) -> None:
    """`checkpoint.resume_from` counts until the run has a checkpoint of its own."""
    asked = spec.checkpoint.resume_from
    own = find_run_directory(attempt, storage)
    if asked is None or (own is not None and CheckpointCatalog(own / CHECKPOINTS).paths()):
        return
    subject = CheckpointSubject.of(spec, task)
    try:
        resolve_checkpoint(storage / asked, Preference.LATEST, subject)
    except CheckpointError as error:
        raise _refused("checkpoint.resume_from", str(error)) from error


def _check_settings(spec: TrainingRunSpec) -> None:
    RuntimeSettings.from_spec(spec)


def _check_gpus(spec: TrainingRunSpec, task: TaskSpec, machine: Machine) -> None:
    asked, device = spec.accelerator.gpus_per_node, spec.training.device
    if asked > machine.gpus:
        raise _refused(
            "accelerator.gpus_per_node",
            f"asks for {asked}, this pod has {machine.gpus} ({machine.gpu_source})",
        )
    kind, _, index = device.partition(":")
    if kind == "cuda" and int(index or 0) >= machine.gpus:
        raise _refused(
            "training.device",
            f"{device} is not there: this pod has {machine.gpus} GPUs ({machine.gpu_source})",
        )
    if task.backend is None:  # a task's own is imported by the rank alone
        inventory = DeviceInventory(machine.gpus, hip=machine.hip)
        capabilities = capabilities_of(spec.sim)
        for local_rank in range(spec.topology.ranks_per_node):
            resolve_devices(spec, local_rank, inventory, capabilities, machine.environ)


def _check_mps(spec: TrainingRunSpec, machine: Machine) -> None:
    try:
        check_mps(spec, machine.environ)
    except MpsError as error:
        raise _refused(MPS_MODE, str(error)) from error


def _check_memory(spec: TrainingRunSpec, task: TaskSpec, machine: Machine) -> None:
    """What the ranks' tensors need; a rank asks its own device once more."""
    try:
        learners = learner_devices(spec, DeviceInventory(machine.gpus, hip=machine.hip))
    except SpecError:  # no such device: told by `_check_gpus`
        return
    room = MemoryRoom(
        host=AvailableMemory(machine.available_bytes, machine.memory_source),
        device=machine.device_memory,
        processes=budget.process_bytes(ranks=len(learners)),
    )
    needed = budget.memory_budget(
        budget.sizes_of(
            spec,
            observation_dim=task.observation_dim,
            action_dim=task.action_dim,
            on_device=learners[0].startswith("cuda"),
        )
    )
    for local_rank in range(len(learners)):
        room.check(needed, learners, local_rank)


def _check_shared_memory(spec: TrainingRunSpec, machine: Machine) -> None:
    """Our own transport is memfd; NCCL's between the ranks of a pod is in /dev/shm.

    In a pod that is a Memory emptyDir: it has a size of its own, and what is written there
    counts in the container's memory limit too, so that the smaller of the two is what it holds.
    """
    ranks = spec.topology.ranks_per_node
    if ranks == 1 or not _on_device(spec, machine):
        return
    needed = ranks * NCCL_SHARED_BYTES
    asks = (
        f"{ranks} ranks on GPUs need {needed / MIB:.0f} MiB of /dev/shm for NCCL "
        f"({ranks} x {NCCL_SHARED_BYTES / MIB:.0f} MiB)"
    )
    if machine.shared_bytes < needed:
        raise _refused(
            "topology.ranks_per_node",
            f"{asks}, {machine.shared_bytes / MIB:.1f} MiB are free; enlarge the volume that is "
            "mounted there. Its size counts in the memory limit, and a writer beyond it is killed",
        )
    processes = budget.process_bytes(ranks=ranks)
    left = max(0, machine.available_bytes - processes)
    if left < needed:
        raise _refused(
            "topology.ranks_per_node",
            f"{asks}, which counts in the memory limit: available is "
            f"{machine.available_bytes / MIB:.1f} MiB ({machine.memory_source}), less "
            f"{processes / MIB:.0f} MiB for the processes themselves leaves {left / MIB:.1f} MiB, "
            "and a writer beyond it is killed; raise the container's memory limit",
        )


def _on_device(spec: TrainingRunSpec, machine: Machine) -> bool:
    return machine.gpus > 0 and spec.training.device != "cpu"


def _refused(path: str, message: str) -> SpecError:
    return SpecError((Violation(path, message),))
