"""What this machine has to offer, asked before any process is started."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_api import budget
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.machine import cuda_devices
from drivetrain_api.memory import MemoryCgroup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from drivetrain_api.machine import CudaDevices
    from drivetrain_api.memory import AvailableMemory
    from drivetrain_api.tasks import TaskSpec
    from drivetrain_api.trainingrun import TrainingRunSpec
    from drivetrain_operator.local.settings import LocalSettings

_CLUSTER_ALONE: Final = (
    "image",
    "queue_name",
    "scheduler_name",
    "ttl_seconds_after_finished",
)
"""Settings of a spec that mean nothing on one machine."""


@dataclass(frozen=True)
class Machine:
    """What was found."""

    memory: AvailableMemory
    devices: CudaDevices

    @classmethod
    def here(cls, settings: LocalSettings) -> Machine:
        """Ask the kernel."""
        return cls(MemoryCgroup().available(), cuda_devices(settings.environment))


def violations(
    spec: TrainingRunSpec, task: TaskSpec, storage: Path, machine: Machine, settings: LocalSettings
) -> tuple[Violation, ...]:
    """Everything that speaks against starting a composed run here."""
    return (
        *_suspended(spec),
        *_launcher(settings),
        *_devices(spec, machine.devices),
        *_memory(spec, task, machine),
        *_writable(spec, storage),
        *_resume_from(spec, storage),
    )


def ignored(spec: TrainingRunSpec) -> tuple[str, ...]:
    """Settings that only a cluster heeds, for a note to the user."""
    found = [name for name in _CLUSTER_ALONE if getattr(spec, name) is not None]
    if spec.training.wandb_api_key_secret_ref is not None:
        found.append("training.wandb_api_key_secret_ref")
    return tuple(found)


def _suspended(spec: TrainingRunSpec) -> Iterator[Violation]:
    if spec.suspend:
        yield Violation("suspend", "is true: the run would never start; remove it")


def _launcher(settings: LocalSettings) -> Iterator[Violation]:
    command = settings.launcher[0]
    if settings.find(command) is None:
        yield Violation(
            "",
            f"{command!r} is not to be found in PATH={settings.search_path()}: "
            "pip install 'drivetrain[trainer]'",
        )


def _devices(spec: TrainingRunSpec, devices: CudaDevices) -> Iterator[Violation]:
    there = len(devices.visible)
    nodes, each = spec.topology.nodes, spec.accelerator.gpus_per_node
    if nodes * each > there:
        yield Violation(
            "accelerator.gpus_per_node",
            f"{nodes} pod(s) with {each} want {nodes * each} device(s) and {there} can be used "
            f"here: {devices.searched}",
        )
    kind, _, index = spec.training.device.partition(":")
    usable = each or there
    if kind == "cuda" and int(index or 0) >= min(usable, there):
        yield Violation(
            "training.device",
            f"{spec.training.device} is not there, {min(usable, there)} can be used: "
            f"{devices.searched}",
        )


def _memory(spec: TrainingRunSpec, task: TaskSpec, machine: Machine) -> Iterator[Violation]:
    """Host memory; what a device has is asked by the rank that uses it."""
    if spec.training.device != "cpu" and machine.devices.visible:
        return
    sizes = budget.sizes_of(
        spec, observation_dim=task.observation_dim, action_dim=task.action_dim, on_device=False
    )
    ranks = spec.topology.world_size
    processes = budget.process_bytes(ranks=ranks, pods=spec.topology.nodes)
    left = max(0, machine.memory.bytes - processes)
    try:
        budget.check(budget.memory_budget(sizes), left, ranks=ranks)
    except SpecError as error:
        note = (
            f"; available is {machine.memory.bytes // budget.MIB} MiB "
            f"({machine.memory.source}) less {processes // budget.MIB} MiB for the processes"
        )
        for found in error.violations:
            yield Violation(found.path, found.message + note)


def _writable(spec: TrainingRunSpec, storage: Path) -> Iterator[Violation]:
    setting = "log_root" if spec.training.log_dir is None else "log_dir"
    folder = storage / (spec.training.log_dir or spec.training.log_root or ".")
    problem = unwritable(folder)
    if problem is not None:
        yield Violation(f"training.{setting}", f"{folder} cannot be written to: {problem}")


def unwritable(folder: Path) -> str | None:
    """Why nothing can be made in `folder`, which need not exist; None where something can.

    It is tried: permissions alone do not tell of read-only mounts, quotas and root.
    """
    nearest = next(p for p in (folder, *folder.absolute().parents) if os.path.lexists(p))
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        return f"{nearest}: {error.strerror}"
    return None


def _resume_from(spec: TrainingRunSpec, storage: Path) -> Iterator[Violation]:
    asked = spec.checkpoint.resume_from
    if asked is not None and not (storage / asked).is_dir():
        yield Violation("checkpoint.resume_from", f"no folder {storage / asked}")
