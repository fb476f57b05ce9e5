"""Physics backends of each kind, over unit masses on a line, and tasks that bring them.

A manifest reaches them as it reaches any task of a user's own::

    task: {name: fake_bridge, entry_point: "fake_backends:bridge"}

with this folder on the module path, which a collector inherits from its learner.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.tasks import TaskParameters, TaskSpec
from drivetrain_api.training import Simulator
from drivetrain_trainer.envs.definition import (
    EnvDefinition,
    ObservationTerm,
    ResetTerm,
    RewardTerm,
)
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.terms import observations, resets, rewards
from drivetrain_trainer.envs.vector_env import EnvRequest
from drivetrain_trainer.physics.port import (
    BackendCapabilities,
    BackendKind,
    BackendWorkerError,
    Divergence,
    ModelFacts,
    PhysicsError,
    RenderState,
)

WORKER = Path(__file__).with_name("fake_backend_worker.py")
TIMESTEP = 0.05
EPISODE_LENGTH = 20

BRIDGE = BackendCapabilities(
    kind=BackendKind.HOST_BRIDGE,
    torch_devices=frozenset({"cpu", "cuda"}),
    carriers=frozenset({"cpu", "cuda"}),
    packed_transfer=True,
)
CPU_BRIDGE = BackendCapabilities(
    kind=BackendKind.HOST_BRIDGE,
    torch_devices=frozenset({"cpu"}),
    carriers=frozenset({"cpu"}),
    packed_transfer=True,
)
NATIVE = BackendCapabilities(kind=BackendKind.NATIVE, torch_devices=frozenset({"cpu", "cuda"}))
CUDA_NATIVE = BackendCapabilities(kind=BackendKind.NATIVE, torch_devices=frozenset({"cuda"}))
EXTERNAL = BackendCapabilities(kind=BackendKind.EXTERNAL_PROCESS, torch_devices=frozenset({"cpu"}))


class FakeParameters(TaskParameters):
    """Faults on request; they happen in the step of that number, counted from 1."""

    worker_dies_at: int = 0
    """The external process exits with status 3; 0 for never."""
    worker_hangs_at: int = 0
    """The external process no longer answers; 0 for never."""
    answer_timeout_s: float = 5.0
    """How long its answers are waited for."""


def _facts() -> ModelFacts:
    return ModelFacts(
        nq=1,
        nv=1,
        nu=1,
        timestep=TIMESTEP,
        initial_qpos=torch.zeros(1, dtype=torch.float64),
        initial_qvel=torch.zeros(1, dtype=torch.float64),
        control_low=torch.full((1,), -1.0, dtype=torch.float64),
        control_high=torch.full((1,), 1.0, dtype=torch.float64),
        body_mass=torch.tensor([0.0, 1.0], dtype=torch.float64),
        body_names=("world", "mass"),
        site_names=(),
        actuator_names=("force",),
    )


class FakeBridge:
    """Unit masses in this process: v += u dt, x += v dt, each substep."""

    capabilities: ClassVar[BackendCapabilities] = BRIDGE
    warning_names: tuple[str, ...] = ()

    def __init__(self, num_worlds: int) -> None:
        self.model = _facts()
        self.num_worlds = num_worlds
        self.qpos, self.qvel, self.ctrl = (
            torch.zeros(num_worlds, 1, dtype=torch.float64) for _ in range(3)
        )
        self._closed = False

    def output(self, name: str) -> Tensor:
        raise PhysicsError(f"output {name!r} was not asked for; the set-up has: ")

    def step(self, substeps: int) -> Divergence | None:
        if self._closed:
            raise PhysicsError("the simulation is closed")
        for _ in range(substeps):
            self.qvel += self.ctrl * TIMESTEP
            self.qpos += self.qvel * TIMESTEP
        return None

    def reset(self, ids: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        self.qpos[ids] = qpos
        self.qvel[ids] = qvel

    def render_state(self, world: int) -> RenderState:
        return RenderState(None, self.qpos[world].clone(), self.qvel[world].clone())

    def close(self) -> None:
        self._closed = True


class FakeCpuBridge(FakeBridge):
    """A bridge that carries to no other device."""

    capabilities = CPU_BRIDGE


class FakeNative(FakeBridge):
    """Declares that its worlds live on a device of its own, and keeps which was asked for."""

    capabilities = NATIVE

    def __init__(self, num_worlds: int, device: str = "cpu") -> None:
        super().__init__(num_worlds)
        self.device = device


class FakeCudaNative(FakeNative):
    """Declares that its worlds live on a CUDA device."""

    capabilities = CUDA_NATIVE


class FakeExternal(FakeBridge):
    """The same masses, stepped by a process of their own."""

    capabilities = EXTERNAL

    def __init__(self, num_worlds: int, parameters: FakeParameters | None = None) -> None:
        super().__init__(num_worlds)
        given = parameters or FakeParameters()
        self._timeout_s = given.answer_timeout_s
        self._worker = subprocess.Popen(
            [
                sys.executable,
                "-S",
                str(WORKER),
                str(TIMESTEP),
                str(given.worker_dies_at),
                str(given.worker_hangs_at),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    @property
    def worker_pid(self) -> int:
        return self._worker.pid

    def step(self, substeps: int) -> Divergence | None:
        state = (self.qpos, self.qvel, self.ctrl)
        request = {"substeps": substeps, "state": [part[:, 0].tolist() for part in state]}
        qpos, qvel = self._ask(request)
        self.qpos[:, 0] = torch.tensor(qpos, dtype=torch.float64)
        self.qvel[:, 0] = torch.tensor(qvel, dtype=torch.float64)
        return None

    def close(self) -> None:
        super().close()
        for pipe in (self._worker.stdin, self._worker.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._worker.kill()
        self._worker.wait()

    def _ask(self, request: dict[str, object]) -> list[list[float]]:
        worker = self._worker
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            worker.stdin.write(json.dumps(request).encode() + b"\n")
            worker.stdin.flush()
        except BrokenPipeError:
            raise self._gone() from None
        if not _readable(worker.stdout.fileno(), self._timeout_s):
            how = f"has not answered within {self._timeout_s:g} s"
            raise BackendWorkerError("fake_external", worker.pid, how)
        line = worker.stdout.readline()
        if not line:
            raise self._gone()
        answer: list[list[float]] = json.loads(line)
        return answer

    def _gone(self) -> BackendWorkerError:
        code = self._worker.wait(self._timeout_s)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        return BackendWorkerError("fake_external", self._worker.pid, how)


def _readable(fd: int, timeout_s: float) -> bool:
    return bool(select.select([fd], [], [], timeout_s)[0])


def make_bridge(request: EnvRequest, _: FakeParameters) -> ManagerEnv:
    return _env(request, FakeBridge(request.num_envs))


def make_cpu_bridge(request: EnvRequest, _: FakeParameters) -> ManagerEnv:
    return _env(request, FakeCpuBridge(request.num_envs))


def make_cuda_native(request: EnvRequest, _: FakeParameters) -> ManagerEnv:
    return _env(request, FakeCudaNative(request.num_envs, request.device))


def make_native(request: EnvRequest, _: FakeParameters) -> ManagerEnv:
    return _env(request, FakeNative(request.num_envs, request.device))


def make_external(request: EnvRequest, parameters: FakeParameters) -> ManagerEnv:
    return _env(request, FakeExternal(request.num_envs, parameters))


def _env(request: EnvRequest, physics: FakeBridge) -> ManagerEnv:
    return ManagerEnv(DEFINITION, request, physics=physics)


DEFINITION = EnvDefinition(
    model="<mujoco/>",
    substeps=2,
    episode_length=EPISODE_LENGTH,
    tracked={"x": rewards.coordinate(0)},
    observations=(
        ObservationTerm("position", observations.positions()),
        ObservationTerm("velocity", observations.velocities()),
    ),
    rewards=(RewardTerm("forward", rewards.speed("x")),),
    resets=(ResetTerm("position", resets.add_uniform_positions(0.1)),),
)


def _task(kind: str) -> TaskSpec:
    return TaskSpec(
        name=f"fake_{kind}",
        factory=f"fake_backends:make_{kind}",
        observation_dim=2,
        action_dim=1,
        episode_length=EPISODE_LENGTH,
        description=f"Masses on a line, over the fake {kind} backend.",
        simulators=frozenset(Simulator),
        presets={AlgoName.SAC: {"training": {"total_env_steps": 1000}}},
        parameters=FakeParameters,
        backend="fake_backends:Fake" + "".join(part.title() for part in kind.split("_")),
    )


bridge = _task("bridge")
cpu_bridge = _task("cpu_bridge")
native = _task("native")
cuda_native = _task("cuda_native")
external = _task("external")
