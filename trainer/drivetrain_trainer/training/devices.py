"""Which devices a rank uses, from what was asked for and what is there."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.training import CollectorTensorDevice, TrainingConfig


@dataclass(frozen=True)
class DeviceInventory:
    """What the machine has; injected in tests."""

    cuda_devices: int

    @classmethod
    def of_machine(cls) -> DeviceInventory:
        """Ask Torch."""
        return cls(cuda_devices=torch.cuda.device_count() if torch.cuda.is_available() else 0)


@dataclass(frozen=True)
class ResolvedDevices:
    """Concrete devices of a rank, beside what was configured."""

    learner_configured: str
    learner: str
    collector_tensor_configured: str
    collector_tensor: str

    def evidence(self) -> dict[str, dict[str, str]]:
        """`run.resolved_devices` of run_config.json."""
        return {
            "learner": {"configured": self.learner_configured, "resolved": self.learner},
            "collector_tensor": {
                "configured": self.collector_tensor_configured,
                "resolved": self.collector_tensor,
            },
        }


def resolve_devices(
    training: TrainingConfig, local_rank: int, inventory: DeviceInventory
) -> ResolvedDevices:
    """Concrete devices for a local rank.

    Raises:
        SpecError: naming ``training.device`` or ``training.collector_tensor_device`` where
            CUDA is asked for and not there, or the pairing is not supported.
    """
    learner = _learner_device(training.device, local_rank, inventory)
    asked = training.collector_tensor_device
    if asked is CollectorTensorDevice.CUDA and not learner.startswith("cuda"):
        raise _refuse(
            "training.collector_tensor_device",
            f"'cuda' needs a CUDA learner, but training.device resolves to {learner!r}",
        )
    return ResolvedDevices(
        learner_configured=training.device,
        learner=learner,
        collector_tensor_configured=asked.value,
        collector_tensor="cpu",
    )


def _learner_device(asked: str, local_rank: int, inventory: DeviceInventory) -> str:
    if asked == "cpu" or (asked == "auto" and inventory.cuda_devices == 0):
        return "cpu"
    if inventory.cuda_devices == 0:
        raise _refuse(
            "training.device", f"{asked!r} was asked for, but this machine has no CUDA device"
        )
    index = int(asked.partition(":")[2]) if ":" in asked else local_rank % inventory.cuda_devices
    if index >= inventory.cuda_devices:
        raise _refuse(
            "training.device",
            f"{asked!r} is not there: allowed are cuda:0 to cuda:{inventory.cuda_devices - 1}",
        )
    return f"cuda:{index}"


def _refuse(path: str, message: str) -> SpecError:
    return SpecError((Violation(path, message),))
