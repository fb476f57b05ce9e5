"""Every rule of the devices, by an injected inventory and declared capabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from fake_backends import BRIDGE, CPU_BRIDGE, CUDA_NATIVE, EXTERNAL, NATIVE
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_api.algorithms import SacConfig
from drivetrain_api.errors import SpecError
from drivetrain_api.training import EnvConfig, Simulator, TaskConfig, TrainingConfig
from drivetrain_api.trainingrun import TrainingRunSpec
from drivetrain_trainer.physics.capabilities import MUJOCO
from drivetrain_trainer.physics.port import BackendCapabilities
from drivetrain_trainer.runtime.devices import (
    ALLOW_CPU_CARRIER,
    DeviceInventory,
    ResolvedDevices,
    RingKind,
    resolve_devices,
)

BARE = DeviceInventory(0)
ONE = DeviceInventory(1)
FOUR = DeviceInventory(4)
ROCM = DeviceInventory(2, hip=True)
METAL = DeviceInventory(0, mps=True)

HIP_NATIVE = BackendCapabilities(NATIVE.kind, NATIVE.torch_devices, hip=True)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One case's request, on one machine."""

    device: str = "auto"
    collector: str = "auto"
    env: str | None = None
    machine: DeviceInventory = BARE
    rank: int = 0
    backend: BackendCapabilities = MUJOCO
    environ: dict[str, str] = field(default_factory=dict)
    sharing: str | None = None

    def resolve(self) -> ResolvedDevices:
        training: dict[str, Any] = {
            "device": self.device,
            "collector_tensor_device": self.collector,
            "cuda_process_sharing": self.sharing,
        }
        spec = TrainingRunSpec(
            algo=SacConfig(),
            task=TaskConfig(name="any"),
            sim=Simulator.MJWARP if self.backend is not MUJOCO else Simulator.MUJOCO,
            training=TrainingConfig.model_validate(training),
            env=EnvConfig(collector_tensor_device=self.env),
        )
        return resolve_devices(spec, self.rank, self.machine, self.backend, self.environ)


ALLOWED = {ALLOW_CPU_CARRIER: "1"}


@pytest.mark.parametrize(
    ("asked", "learner", "collector"),
    [
        # auto follows the learner, on the rank's own index
        (Asked(), "cpu", "cpu"),
        (Asked(machine=ONE), "cuda:0", "cuda:0"),
        (Asked(machine=FOUR, rank=3), "cuda:3", "cuda:3"),
        (Asked(machine=FOUR, rank=5), "cuda:1", "cuda:1"),
        (Asked(machine=FOUR, rank=2, device="cuda"), "cuda:2", "cuda:2"),
        (Asked(machine=FOUR, rank=3, device="cuda:1"), "cuda:1", "cuda:1"),
        (Asked(machine=FOUR, device="cpu"), "cpu", "cpu"),
        (Asked(machine=METAL), "cpu", "cpu"),
        (Asked(machine=METAL, device="mps"), "mps", "cpu"),
        # an explicit request beats auto
        (Asked(machine=FOUR, rank=1, collector="cuda"), "cuda:1", "cuda:1"),
        (Asked(machine=FOUR, device="cpu", collector="cpu"), "cpu", "cpu"),
        (Asked(machine=METAL, device="mps", collector="cpu"), "mps", "cpu"),
        # cpu carriers beside a CUDA learner: on ROCm, or on request
        (Asked(machine=ROCM, rank=1, collector="cpu"), "cuda:1", "cpu"),
        (Asked(machine=ONE, collector="cpu", environ=ALLOWED), "cuda:0", "cpu"),
        # cuda means AMD's devices as well
        (Asked(machine=ROCM, rank=1), "cuda:1", "cuda:1"),
        (Asked(machine=ROCM, collector="cuda"), "cuda:0", "cuda:0"),
        # a bridge to the CPU alone serves CPU learners
        (Asked(backend=CPU_BRIDGE), "cpu", "cpu"),
        (Asked(backend=CPU_BRIDGE, machine=FOUR, device="cpu"), "cpu", "cpu"),
        (Asked(backend=CPU_BRIDGE, machine=ONE, collector="cpu", environ=ALLOWED), "cuda:0", "cpu"),
        # others ignore auto and cpu: their tensors lie on their own device
        (Asked(backend=NATIVE, machine=FOUR, rank=2), "cuda:2", "cuda:2"),
        (Asked(backend=NATIVE, machine=FOUR, rank=2, collector="cpu"), "cuda:2", "cuda:2"),
        (Asked(backend=NATIVE), "cpu", "cpu"),
        (Asked(backend=NATIVE, machine=ROCM, device="cpu"), "cpu", "cpu"),
        (Asked(backend=CUDA_NATIVE, machine=ONE), "cuda:0", "cuda:0"),
        (Asked(backend=HIP_NATIVE, machine=ROCM), "cuda:0", "cuda:0"),
        (Asked(backend=EXTERNAL, machine=ONE), "cuda:0", "cpu"),
        (Asked(backend=EXTERNAL, machine=ONE, collector="cpu"), "cuda:0", "cpu"),
        (Asked(backend=EXTERNAL), "cpu", "cpu"),
        # the composed key repeats the result
        (Asked(machine=FOUR, rank=2, env="cuda"), "cuda:2", "cuda:2"),
        (Asked(machine=FOUR, rank=2, env="cuda:2"), "cuda:2", "cuda:2"),
        (Asked(env="cpu"), "cpu", "cpu"),
        (Asked(machine=ONE, sharing="mps", backend=NATIVE), "cuda:0", "cuda:0"),
    ],
)
def test_what_is_asked_for_and_there_resolves(asked: Asked, learner: str, collector: str) -> None:
    devices = asked.resolve()
    assert (devices.learner, devices.collector_tensor) == (learner, collector)
    assert devices.ring is (RingKind.HOST if collector == "cpu" else RingKind.CUDA)
    assert devices.evidence() == {
        "learner": {"configured": asked.device, "resolved": learner},
        "collector_tensor": {"configured": asked.collector, "resolved": collector},
    }


LEARNER = "training.device"
COLLECTOR = "training.collector_tensor_device"
ENV = "env.collector_tensor_device"
SHARING = "training.cuda_process_sharing"


@pytest.mark.parametrize(
    ("asked", "path", "words"),
    [
        (Asked(device="cuda"), LEARNER, "no CUDA device"),
        (Asked(device="cuda:0"), LEARNER, "no CUDA device"),
        (Asked(device="cuda", machine=METAL), LEARNER, "no CUDA device"),
        (Asked(device="cuda:4", machine=FOUR), LEARNER, "cuda:0 to cuda:3"),
        (Asked(device="mps", machine=FOUR), LEARNER, "no Metal device"),
        # cuda is never another device
        (Asked(collector="cuda"), COLLECTOR, "no CUDA device"),
        (Asked(collector="cuda", machine=METAL), COLLECTOR, "no CUDA device"),
        (Asked(collector="cuda", machine=METAL, device="mps"), COLLECTOR, "no CUDA device"),
        (Asked(collector="cuda", machine=ONE, device="cpu"), COLLECTOR, "needs a CUDA learner"),
        # the pairing contract
        (Asked(collector="cpu", machine=ONE), COLLECTOR, f"{ALLOW_CPU_CARRIER}=1"),
        (Asked(collector="cpu", machine=FOUR, device="cuda:3"), COLLECTOR, "use auto"),
        (
            Asked(collector="cpu", machine=ONE, environ={ALLOW_CPU_CARRIER: "0"}),
            COLLECTOR,
            "through host memory",
        ),
        # beyond what the backend declares
        (Asked(backend=CPU_BRIDGE, machine=ONE), COLLECTOR, "it offers cpu"),
        (Asked(backend=CPU_BRIDGE, machine=ONE, collector="cuda"), COLLECTOR, "it offers cpu"),
        # cuda asks a host bridge
        (Asked(backend=NATIVE, machine=ONE, collector="cuda"), COLLECTOR, "(native) lie on its"),
        (Asked(backend=CUDA_NATIVE, machine=ONE, collector="cuda"), COLLECTOR, "use auto"),
        (Asked(backend=EXTERNAL, machine=ONE, collector="cuda"), COLLECTOR, "(external process)"),
        # tensors that can lie nowhere
        (Asked(backend=CUDA_NATIVE), "sim", "cuda alone"),
        (Asked(backend=CUDA_NATIVE, machine=ONE, device="cpu"), "sim", "resolves to 'cpu'"),
        (Asked(backend=CUDA_NATIVE, machine=METAL, device="mps"), "sim", "resolves to 'mps'"),
        # CUDA backends are NVIDIA's
        (Asked(backend=CUDA_NATIVE, machine=ROCM), "sim", "ROCm"),
        (Asked(backend=NATIVE, machine=ROCM), "sim", "needs an NVIDIA GPU"),
        # a result that disagrees
        (Asked(env="cuda"), ENV, "'cuda' contradicts 'cpu'"),
        (Asked(env="cpu", machine=ONE), ENV, "'cpu' contradicts 'cuda:0'"),
        (Asked(env="cuda:1", machine=FOUR), ENV, "'cuda:1' contradicts 'cuda:0'"),
        (Asked(env="cpu", machine=ONE, backend=NATIVE), ENV, "leave it out"),
        # CUDA MPS
        (Asked(sharing="mps", machine=ROCM, backend=HIP_NATIVE), SHARING, "ROCm"),
        (Asked(sharing="mps", backend=NATIVE), SHARING, "resolves to 'cpu'"),
    ],
)
def test_what_cannot_be_is_refused_by_the_key_that_asked(
    asked: Asked, path: str, words: str
) -> None:
    with pytest.raises(SpecError) as refused:
        asked.resolve()
    (violation,) = refused.value.violations
    assert violation.path == path
    assert words in violation.message


@pytest.mark.parametrize(
    ("asked", "backend"),
    [
        (Asked(machine=ONE), None),
        (Asked(backend=NATIVE), None),
        (Asked(backend=EXTERNAL, machine=ONE), None),
        (Asked(backend=NATIVE, machine=FOUR, rank=3), "cuda:3"),
    ],
)
def test_a_backend_has_a_device_where_it_is_bound_to_one(asked: Asked, backend: str | None) -> None:
    assert asked.resolve().backend == backend


@given(
    asked=st.builds(
        Asked,
        device=st.sampled_from(["auto", "cpu", "mps", "cuda", "cuda:0", "cuda:1"]),
        collector=st.sampled_from(["auto", "cpu", "cuda"]),
        machine=st.builds(DeviceInventory, st.integers(0, 4), hip=st.booleans(), mps=st.booleans()),
        rank=st.integers(0, 7),
        backend=st.sampled_from([MUJOCO, BRIDGE, CPU_BRIDGE, NATIVE, CUDA_NATIVE, EXTERNAL]),
        environ=st.sampled_from([{}, ALLOWED]),
    )
)
def test_whatever_resolves_is_there_offered_and_never_another_kind(asked: Asked) -> None:
    try:
        devices = asked.resolve()
    except SpecError:
        return
    kinds = {"cpu"} | ({"cuda"} if asked.machine.cuda_devices else set())
    kinds |= {"mps"} if asked.machine.mps else set()
    collector = devices.collector_tensor.partition(":")[0]
    assert devices.learner.partition(":")[0] in kinds
    assert collector in kinds & asked.backend.torch_devices
    if asked.collector == "cuda":
        assert collector == "cuda"
    if collector == "cuda":
        assert devices.collector_tensor == devices.learner
        assert int(devices.learner.partition(":")[2]) < asked.machine.cuda_devices
