"""Which devices a rank uses, from what was asked for, what is there, and what physics offers.

Three layers are kept apart: the learner's device (``training.device``), where the collector's
tensors lie (asked for by ``training.collector_tensor_device`` alone; the environments' own
``env.collector_tensor_device`` is its composed result), and the accelerator that the physics
backend is bound to. The inference ring follows from the second. Needs no Torch, so that the
launcher refuses what cannot work before a rank is started.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.training import CollectorTensorDevice
from drivetrain_trainer.physics.port import BackendKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.trainingrun import TrainingRunSpec
    from drivetrain_trainer.physics.port import BackendCapabilities

ALLOW_CPU_CARRIER: Final = "DRIVETRAIN_ALLOW_CUDA_LEARNER_CPU_CARRIER"
"""Set to 1 in a rank's environment: collector tensors may stay on the CPU beside a CUDA learner,
for baselines and debugging."""

_LEARNER: Final = "training.device"
_COLLECTOR: Final = "training.collector_tensor_device"
_ENV: Final = "env.collector_tensor_device"
_SHARING: Final = "training.cuda_process_sharing"


class RingKind(StrEnum):
    """Where the inference ring lies; derived, never configured."""

    HOST = "host"
    """Host memory that both processes map."""
    CUDA = "cuda"
    """Device memory that the collector opens by CUDA IPC."""


@dataclass(frozen=True)
class DeviceInventory:
    """What a machine has; injected in tests."""

    cuda_devices: int
    """As Torch counts them: NVIDIA's, or AMD's in a ROCm build."""
    hip: bool = False
    """Whether the CUDA devices are AMD's (a ROCm build of Torch)."""
    mps: bool = False
    """Whether Apple's Metal is there (Torch's device ``mps``)."""


@dataclass(frozen=True)
class ResolvedDevices:
    """Concrete devices of a rank, beside what was configured."""

    learner_configured: str
    learner: str
    """Torch device of the learner, with its index where it is CUDA's."""
    collector_tensor_configured: str
    collector_tensor: str
    """Torch device of the observations and actions that cross between both processes."""
    backend: str | None = None
    """Accelerator that the physics backend is bound to; None for one in host memory."""

    @property
    def ring(self) -> RingKind:
        """The inference ring that these devices need."""
        return RingKind.CUDA if _kind(self.collector_tensor) == "cuda" else RingKind.HOST

    def evidence(self) -> dict[str, dict[str, str]]:
        """`run.resolved_devices` of run_config.json; the start-up log tells the same."""
        return {
            "learner": {"configured": self.learner_configured, "resolved": self.learner},
            "collector_tensor": {
                "configured": self.collector_tensor_configured,
                "resolved": self.collector_tensor,
            },
        }


def resolve_devices(
    spec: TrainingRunSpec,
    local_rank: int,
    inventory: DeviceInventory,
    capabilities: BackendCapabilities,
    environ: Mapping[str, str],
) -> ResolvedDevices:
    """Concrete devices for a local rank of a composed spec.

    Args:
        spec: The composed spec.
        local_rank: Number of the rank on its machine: ranks take CUDA devices in turn.
        inventory: What the machine has.
        capabilities: Of the physics backend.
        environ: The rank's environment, for `ALLOW_CPU_CARRIER`.

    Raises:
        SpecError: naming the key whose request cannot be met here.
    """
    learner = _learner_device(spec.training.device, local_rank, inventory)
    asked = spec.training.collector_tensor_device
    bridged = capabilities.kind is BackendKind.HOST_BRIDGE
    if bridged:
        collector = _carrier(asked, learner, inventory, capabilities, environ)
    else:
        collector = _own_device(spec, learner, inventory, capabilities)
    _check_composed(spec.env.collector_tensor_device, asked, collector)
    _check_sharing(spec, learner, inventory)
    on_accelerator = not bridged and _kind(collector) == "cuda"
    return ResolvedDevices(
        learner_configured=spec.training.device,
        learner=learner,
        collector_tensor_configured=asked.value,
        collector_tensor=collector,
        backend=collector if on_accelerator else None,
    )


def learner_devices(spec: TrainingRunSpec, inventory: DeviceInventory) -> tuple[str, ...]:
    """Device of each local rank's learner; a device that stands there twice is shared.

    Raises:
        SpecError: the one that was asked for is not there.
    """
    ranks = range(spec.topology.ranks_per_node)
    return tuple(_learner_device(spec.training.device, rank, inventory) for rank in ranks)


def _learner_device(asked: str, local_rank: int, inventory: DeviceInventory) -> str:
    count = inventory.cuda_devices
    if asked == "mps":
        if not inventory.mps:
            raise _refuse(_LEARNER, "'mps' was asked for, but this machine has no Metal device")
        return "mps"
    if asked == "cpu" or (asked == "auto" and count == 0):
        return "cpu"
    if count == 0:
        raise _refuse(_LEARNER, f"{asked!r} was asked for, but this machine has no CUDA device")
    index = int(asked.partition(":")[2]) if ":" in asked else local_rank % count
    if index >= count:
        raise _refuse(_LEARNER, f"{asked!r} is not there: allowed are cuda:0 to cuda:{count - 1}")
    return f"cuda:{index}"


def _carrier(
    asked: CollectorTensorDevice,
    learner: str,
    inventory: DeviceInventory,
    capabilities: BackendCapabilities,
    environ: Mapping[str, str],
) -> str:
    """Where a host bridge presents its tensors."""
    on_cuda = _kind(learner) == "cuda"
    if asked is CollectorTensorDevice.CUDA and inventory.cuda_devices == 0:
        raise _refuse(_COLLECTOR, "'cuda' was asked for, but this machine has no CUDA device")
    if asked is CollectorTensorDevice.CUDA and not on_cuda:
        raise _refuse(
            _COLLECTOR, f"'cuda' needs a CUDA learner, but training.device resolves to {learner!r}"
        )
    if asked is CollectorTensorDevice.CPU and on_cuda:
        _check_pairing(learner, inventory, environ)
    wanted = learner if on_cuda and asked is not CollectorTensorDevice.CPU else "cpu"
    if _kind(wanted) not in capabilities.carriers:
        raise _refuse(
            _COLLECTOR,
            f"{asked.value!r} resolves to {wanted!r}, to which the backend does not carry "
            f"tensors: it offers {', '.join(sorted(capabilities.carriers))}",
        )
    return wanted


def _check_pairing(learner: str, inventory: DeviceInventory, environ: Mapping[str, str]) -> None:
    """CPU carriers beside a CUDA learner: only where nothing better is there, or on request."""
    if inventory.hip or environ.get(ALLOW_CPU_CARRIER) == "1":
        return
    raise _refuse(
        _COLLECTOR,
        f"'cpu' with the learner on {learner!r} takes every tensor through host memory: use auto "
        f"or cuda. For a baseline or to debug, set {ALLOW_CPU_CARRIER}=1",
    )


def _own_device(
    spec: TrainingRunSpec,
    learner: str,
    inventory: DeviceInventory,
    capabilities: BackendCapabilities,
) -> str:
    """Where a backend without a host bridge has its tensors: `auto` and `cpu` mean nothing to it.

    On the learner's device where it offers that, else on the one that it has.
    """
    kind = capabilities.kind.value.replace("_", " ")
    offered = ", ".join(sorted(capabilities.torch_devices))
    if spec.training.collector_tensor_device is CollectorTensorDevice.CUDA:
        raise _refuse(
            _COLLECTOR,
            f"'cuda' asks a host bridge to carry tensors there; this backend's ({kind}) lie on "
            f"its own device ({offered}): use auto",
        )
    wanted = _kind(learner)
    if wanted not in capabilities.torch_devices:
        wanted = "cpu"
    if wanted not in capabilities.torch_devices:
        raise _refuse(
            "sim",
            f"{spec.sim} has its tensors on {offered} alone, but training.device resolves to "
            f"{learner!r}",
        )
    if wanted == "cpu":
        return "cpu"
    if inventory.hip and not capabilities.hip:
        raise _refuse(
            "sim",
            f"{spec.sim} needs an NVIDIA GPU for tensors on {learner!r}; this build of Torch is "
            "for ROCm",
        )
    return learner


def _check_composed(given: str | None, asked: CollectorTensorDevice, collector: str) -> None:
    """The environments' key is a result: it may repeat it, not contradict it."""
    if given is None or given in (collector, _kind(collector)):
        return
    raise _refuse(
        _ENV,
        f"{given!r} contradicts {collector!r}, which training.collector_tensor_device "
        f"{asked.value!r} resolves to here: leave it out",
    )


def _check_sharing(spec: TrainingRunSpec, learner: str, inventory: DeviceInventory) -> None:
    wanted = spec.training.cuda_process_sharing
    if wanted is None:
        return
    if inventory.hip:
        raise _refuse(
            _SHARING, f"{wanted.value!r} is NVIDIA's CUDA MPS; this build of Torch is for ROCm"
        )
    if _kind(learner) != "cuda":
        raise _refuse(
            _SHARING,
            f"{wanted.value!r} needs a CUDA learner, but training.device resolves to {learner!r}",
        )


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _refuse(path: str, message: str) -> SpecError:
    return SpecError((Violation(path, message),))
