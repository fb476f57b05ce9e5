"""mjwarp's worlds on the CPU, held to MuJoCo's own; the device's parts by stand-ins.

Kernels are compiled on the first run, which takes minutes, and come from the cache later.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor

from drivetrain_api.training import Simulator
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.envs.vector_env import diagnostics_of
from drivetrain_trainer.physics.capabilities import MJWARP
from drivetrain_trainer.physics.factory import make_physics
from drivetrain_trainer.physics.mjwarp_backend import MjwarpPhysics
from drivetrain_trainer.physics.port import BackendKind, Physics, PhysicsError, SimulationSetup
from drivetrain_trainer.physics.warp_fence import HostFence
from drivetrain_trainer.tasks.assets import gymnasium_model
from drivetrain_trainer.tasks.catalog import TASKS, inverted_pendulum

PENDULUM = gymnasium_model("inverted_pendulum.xml")
WORLDS = 4

compiles = pytest.mark.timeout(900)


def setup(model: Path | str = PENDULUM, **changes: object) -> SimulationSetup:
    return SimulationSetup(**{"model": model, "num_worlds": WORLDS, **changes})  # type: ignore[arg-type]  # a table's changes


@pytest.fixture(scope="module")
def pendulum() -> MjwarpPhysics:
    physics = MjwarpPhysics(setup(outputs=frozenset({"xpos"})))
    assert isinstance(physics, MjwarpPhysics)
    return physics


def put(physics: Physics, qpos: Tensor, qvel: Tensor) -> None:
    physics.reset(torch.arange(WORLDS), qpos.to(physics.qpos), qvel.to(physics.qvel))


def start(physics: Physics, seed: int = 0) -> None:
    """Small noise around the reference state, the same for every backend."""
    generator = torch.Generator().manual_seed(seed)
    model = physics.model
    noise = torch.rand(WORLDS, model.nq, generator=generator) - 0.5
    qpos = model.initial_qpos + (0.05 * noise).to(model.initial_qpos)
    put(physics, qpos, 0.05 * torch.randn(WORLDS, model.nv, generator=generator))


def drive(physics: Physics, steps: int, seed: int = 1) -> None:
    """Single physics steps under controls of [-1, 1)."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        physics.ctrl.copy_(2 * torch.rand(WORLDS, physics.model.nu, generator=generator) - 1)
        assert physics.step(1) is None


def test_it_declares_a_native_backend() -> None:
    assert MjwarpPhysics.capabilities is MJWARP
    assert MJWARP.kind is BackendKind.NATIVE
    assert MJWARP.torch_devices == {"cpu", "cuda"}
    assert not MJWARP.carriers


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": gymnasium_model("humanoid.xml")}, "cannot simulate humanoid.xml: mjSOL_PGS"),
        ({"device": "mps"}, "cpu, cuda, not on 'mps'"),
        ({"device": "cuda:99"}, "no device 'cuda:99'"),
        ({"outputs": frozenset({"xposs"})}, "did you mean xpos"),
        ({"num_worlds": 0}, "at least a world"),
        ({"model": Path("missing.xml")}, "does not load"),
    ],
)
def test_what_it_cannot_simulate_is_refused_by_name(changes: dict[str, object], words: str) -> None:
    with pytest.raises(PhysicsError, match=words):
        MjwarpPhysics(setup(**changes))


def test_the_tasks_that_it_refuses_say_why() -> None:
    refused = {task.name for task in TASKS if Simulator.MJWARP not in task.simulators}
    assert refused == {"humanoid", "humanoid_standup"}
    assert all(Simulator.MJWARP in t.unsupported for t in TASKS if t.name in refused)


@compiles
@pytest.mark.slow
class TestPendulum:
    def test_views_share_the_worlds_memory(self, pendulum: MjwarpPhysics) -> None:
        start(pendulum)
        data = pendulum._data
        assert pendulum.qpos.data_ptr() == data.qpos.ptr
        assert pendulum.qvel.data_ptr() == data.qvel.ptr
        assert pendulum.ctrl.data_ptr() == data.ctrl.ptr
        pendulum.qpos[2, 0] = 0.25
        assert data.qpos.numpy()[2, 0] == 0.25

    def test_state_and_facts_are_float32(self, pendulum: MjwarpPhysics) -> None:
        facts = pendulum.model
        assert pendulum.qpos.dtype is facts.initial_qpos.dtype is torch.float32
        assert (facts.nq, facts.nv, facts.nu) == (2, 2, 1)

    @pytest.mark.parametrize(("steps", "tolerance"), [(1, 1e-6), (100, 2e-4)])
    def test_it_agrees_with_mujoco(
        self, pendulum: MjwarpPhysics, steps: int, tolerance: float
    ) -> None:
        reference = make_physics(Simulator.MUJOCO, setup(outputs=frozenset({"xpos"})))
        for physics in (pendulum, reference):
            start(physics)
            drive(physics, steps)
        torch.testing.assert_close(
            pendulum.qpos.double(), reference.qpos, atol=tolerance, rtol=tolerance
        )
        torch.testing.assert_close(
            pendulum.qvel.double(), reference.qvel, atol=10 * tolerance, rtol=10 * tolerance
        )
        torch.testing.assert_close(
            pendulum.output("xpos").double(), reference.output("xpos"), atol=1e-3, rtol=1e-3
        )

    def test_the_same_start_gives_the_same_numbers(self, pendulum: MjwarpPhysics) -> None:
        found = []
        for _ in range(2):
            start(pendulum)
            drive(pendulum, 20)
            found.append((pendulum.qpos.clone(), pendulum.qvel.clone()))
        assert torch.equal(found[0][0], found[1][0])
        assert torch.equal(found[0][1], found[1][1])

    def test_a_reset_leaves_the_other_worlds_as_they_are(self, pendulum: MjwarpPhysics) -> None:
        start(pendulum)
        drive(pendulum, 5)
        others = [0, 2, 3]
        before = {
            name: view[others].clone()
            for name, view in (*pendulum._state.items(), ("xpos", pendulum.output("xpos")))
        }
        pendulum.reset(torch.tensor([1]), torch.tensor([[0.5, 0.0]]), torch.zeros(1, 2))
        after = {**pendulum._state, "xpos": pendulum.output("xpos")}
        for name, values in before.items():
            assert torch.equal(after[name][others], values), name
        assert pendulum.qpos[1].tolist() == [0.5, 0.0]
        assert pendulum.ctrl[1].tolist() == [0.0]
        cart = pendulum.output("xpos")[1, 1]
        assert cart.tolist() == [0.5, 0.0, 0.0]  # computed from the new state, no step needed

    @pytest.mark.parametrize(
        ("field", "value", "name"),
        [("ctrl", torch.nan, "BADCTRL"), ("qvel", torch.inf, "BADQACC"), ("qvel", 1e12, "BADQ")],
    )
    def test_a_world_that_diverges_is_reported_alone_and_can_be_reset(
        self, pendulum: MjwarpPhysics, field: str, value: float, name: str
    ) -> None:
        start(pendulum)
        getattr(pendulum, field)[1, 0] = value
        found = pendulum.step(1)
        assert found is not None
        assert found.worlds.tolist() == [False, True, False, False]
        assert len(found.counts) == 1
        assert next(iter(found.counts)).startswith(name)
        sound = pendulum.qpos[[0, 2, 3]]
        assert bool(sound.isfinite().all())
        pendulum.reset(torch.tensor([1]), torch.zeros(1, 2), torch.zeros(1, 2))
        assert pendulum.step(1) is None
        assert bool(pendulum.qpos.isfinite().all())

    def test_diagnostics_say_what_is_in_use_and_why_not(self, pendulum: MjwarpPhysics) -> None:
        told = pendulum.runtime_diagnostics()
        assert told.backend_type == "mjwarp"
        assert told.diagnostics is not None
        graph = told.diagnostics["cuda_graph"]
        assert (graph.requested, graph.enabled) == (True, False)
        assert graph.disable_reason == "worlds are on the CPU, which has no CUDA graphs"
        assert set(told.diagnostics) == {
            "cuda_graph",
            "cuda_graph_conditional",
            "event_backed_step",
        }

    def test_outputs_that_were_not_asked_for_are_refused(self, pendulum: MjwarpPhysics) -> None:
        with pytest.raises(PhysicsError, match="'cfrc_ext' was not asked for"):
            pendulum.output("cfrc_ext")

    def test_it_draws_but_is_not_pickled(self, pendulum: MjwarpPhysics) -> None:
        start(pendulum)
        drawn = pendulum.render_state(1)
        assert drawn.qpos.dtype is torch.float64
        assert drawn.qpos.tolist() == pendulum.qpos[1].tolist()
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(pendulum)

    def test_an_asynchronous_fence_gives_a_step_under_way(self) -> None:
        class StandInFence(HostFence):
            asynchronous = True
            waits = 0

            def wait(self) -> None:
                self.waits += 1

        fence = StandInFence()
        physics = MjwarpPhysics(setup(), fence=fence, cuda_graph=False)
        start(physics)
        compiling = fence.waits
        physics.ctrl[3, 0] = torch.nan
        pending = physics.step(1)
        assert pending is physics
        assert fence.waits == compiling
        found = physics.wait()
        assert fence.waits == compiling + 1
        assert found is not None
        assert found.worlds.tolist() == [False, False, False, True]
        told = physics.runtime_diagnostics().diagnostics
        assert told is not None
        assert told["event_backed_step"].enabled is True
        assert told["cuda_graph"].requested is False
        assert told["cuda_graph"].disable_reason == "not asked for"

    def test_closed_worlds_refuse_calls(self) -> None:
        physics = MjwarpPhysics(setup())
        physics.close()
        with pytest.raises(PhysicsError, match="closed"):
            physics.step(1)

    def test_its_environments_are_deterministic_and_tell_of_it(self) -> None:
        found = []
        for _ in range(2):
            env = make_env(inverted_pendulum, num_envs=3, seed=7, sim=Simulator.MJWARP)
            rewards = [env.reset().clone()]
            for index in range(12):
                outcome = env.step(torch.full((3, 1), (-1.0) ** index))
                rewards += [outcome.observation.clone(), outcome.reward.clone()]
            assert diagnostics_of(env).backend_type == "mjwarp"
            env.close()
            found.append(torch.cat([values.flatten() for values in rewards]))
        assert torch.equal(*found)


@compiles
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "steps", "position", "velocity"),
    [
        ("half_cheetah.xml", 1, 1e-5, 1e-4),
        ("half_cheetah.xml", 100, 5e-3, 1e-1),
        ("hopper.xml", 1, 1e-5, 1e-4),
        ("hopper.xml", 100, 1e-3, 1e-2),
    ],
)
def test_bodies_in_contact_agree_with_mujoco(
    model: str, steps: int, position: float, velocity: float
) -> None:
    path = gymnasium_model(model)
    worlds = [make_physics(sim, setup(path)) for sim in (Simulator.MJWARP, Simulator.MUJOCO)]
    for physics in worlds:
        start(physics)
        drive(physics, steps)
    warp, reference = worlds
    torch.testing.assert_close(warp.qpos.double(), reference.qpos, atol=position, rtol=position)
    torch.testing.assert_close(warp.qvel.double(), reference.qvel, atol=velocity, rtol=velocity)


@pytest.mark.gpu
@pytest.mark.timeout(900)
def test_a_captured_step_on_a_device_equals_the_cpus() -> None:
    device = MjwarpPhysics(setup(device="cuda:0"))
    host = MjwarpPhysics(setup())
    for physics in (device, host):
        start(physics)
    device.ctrl.fill_(0.5)
    host.ctrl.fill_(0.5)
    pending = device.step(10)
    assert pending is device
    assert device.wait() is None
    host.step(10)
    torch.testing.assert_close(device.qpos.cpu(), host.qpos, atol=1e-4, rtol=1e-4)
    told = device.runtime_diagnostics().diagnostics
    assert told is not None
    assert told["cuda_graph"].enabled is True
