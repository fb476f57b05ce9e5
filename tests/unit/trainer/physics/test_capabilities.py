from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import fake_backends
import psutil
import pytest
import torch

from drivetrain_api.compose import compose, parse_run
from drivetrain_api.tasks import TaskSpec, load_task
from drivetrain_api.training import (
    AVAILABLE_SIMULATORS,
    HOST_BRIDGE_SIMULATORS,
    Simulator,
    TaskConfig,
)
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.physics.capabilities import CAPABILITIES, MUJOCO, capabilities_of
from drivetrain_trainer.physics.mujoco_backend import MujocoPhysics
from drivetrain_trainer.physics.port import (
    BackendCapabilities,
    BackendKind,
    BackendWorkerError,
    PhysicsError,
)

KINDS = ("bridge", "cpu_bridge", "native", "cuda_native", "external")


def task(kind: str) -> TaskSpec:
    return load_task(TaskConfig(name=f"fake_{kind}", entry_point=f"fake_backends:{kind}"))


def test_mujoco_declares_a_packed_host_bridge() -> None:
    declared = capabilities_of(Simulator.MUJOCO)
    assert declared is MujocoPhysics.capabilities is MUJOCO
    assert declared.kind is BackendKind.HOST_BRIDGE
    assert declared.carriers == {"cpu", "cuda"}
    assert declared.packed_transfer


def test_the_contract_knows_which_simulators_are_host_bridges() -> None:
    bridges = {
        name for name, declared in CAPABILITIES.items() if declared.kind is BackendKind.HOST_BRIDGE
    }
    assert bridges == HOST_BRIDGE_SIMULATORS


def test_every_simulator_of_the_release_declares_itself() -> None:
    assert set(CAPABILITIES) >= AVAILABLE_SIMULATORS


@pytest.mark.parametrize(
    ("kind", "carriers", "packed", "devices"),
    [
        (BackendKind.NATIVE, {"cpu"}, True, {"cpu"}),
        (BackendKind.NATIVE, set(), True, {"cpu"}),
        (BackendKind.HOST_BRIDGE, set(), True, {"cpu"}),
        (BackendKind.HOST_BRIDGE, {"cpu"}, False, {"cpu"}),
        (BackendKind.HOST_BRIDGE, {"cpu", "cuda"}, True, {"cpu"}),
        (BackendKind.EXTERNAL_PROCESS, set(), False, set()),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(
    kind: BackendKind, carriers: set[str], packed: bool, devices: set[str]
) -> None:
    with pytest.raises(ValueError, match="carriers"):
        BackendCapabilities(kind, frozenset(devices), frozenset(carriers), packed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_may_bring_its_own_backend(kind: str) -> None:
    found = task(kind)
    declared = capabilities_of(Simulator.MUJOCO, found.backend)
    assert declared is getattr(fake_backends, kind.upper())


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("no_such_module:Backend", "cannot load the backend"),
        ("fake_backends:NoSuch", "cannot load the backend"),
        ("fake_backends:DEFINITION", "declares no BackendCapabilities"),
    ],
)
def test_what_is_no_backend_is_refused_by_name(backend: str, words: str) -> None:
    with pytest.raises(PhysicsError, match=words):
        capabilities_of(Simulator.MUJOCO, backend)


@pytest.mark.parametrize("kind", KINDS)
def test_each_fake_is_reached_by_a_manifest_and_the_normal_factory(kind: str) -> None:
    run = parse_run(
        {
            "metadata": {"name": "fake"},
            "spec": {
                "algo": {"name": "sac", "numEnvs": 3},
                "task": {"name": f"fake_{kind}", "entryPoint": f"fake_backends:{kind}"},
            },
        }
    )
    spec = compose(run.spec, task(kind))
    env = make_env(load_task(spec.task), num_envs=spec.algo.num_envs, seed=0)
    before = env.reset().clone()
    outcome = env.step(torch.ones(3, 1))
    # Two substeps of 0.05 s under unit force: v = 0.1, x = x0 + 0.0025 + 0.005.
    torch.testing.assert_close(outcome.observation[:, 1], torch.full((3,), 0.1))
    torch.testing.assert_close(outcome.observation[:, 0], before[:, 0] + 0.0075)
    env.close()


def external(**overrides: object) -> fake_backends.ManagerEnv:
    env = make_env(task("external"), num_envs=2, seed=0, overrides=overrides)
    assert isinstance(env, fake_backends.ManagerEnv)
    env.reset()
    return env


def step(env: fake_backends.ManagerEnv) -> None:
    env.step(torch.zeros(2, 1))


@pytest.fixture
def workers() -> Callable[[], set[psutil.Process]]:
    """Processes that the test has started; others may be there, such as a control plane."""
    before = set(psutil.Process().children())
    return lambda: set(psutil.Process().children()) - before


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"worker_dies_at": 2}, "ended with status 3"),
        ({"worker_hangs_at": 2, "answer_timeout_s": 0.2}, "has not answered within 0.2 s"),
    ],
)
def test_a_backend_worker_that_fails_is_told_by_its_own_name(
    overrides: dict[str, object], words: str, workers: Callable[[], set[psutil.Process]]
) -> None:
    env = external(**overrides)
    step(env)
    with pytest.raises(BackendWorkerError, match=words):
        step(env)
    env.close()
    assert not workers()


def test_a_killed_backend_worker_is_told_by_its_signal(
    workers: Callable[[], set[psutil.Process]],
) -> None:
    env = external()
    step(env)
    (worker,) = workers()
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(BackendWorkerError, match=f"process {worker.pid} .* killed by signal 9"):
        step(env)
    env.close()


def test_capabilities_are_values() -> None:
    assert replace(MUJOCO, hip=True) != MUJOCO
