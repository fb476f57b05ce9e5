from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
import pytest
import torch

from drivetrain_api.training import Simulator
from drivetrain_trainer.physics.blocked_batch import BlockedBatch
from drivetrain_trainer.physics.factory import make_physics
from drivetrain_trainer.physics.mujoco_backend import MujocoPhysics
from drivetrain_trainer.physics.persistent_block import PersistentBlock
from drivetrain_trainer.physics.port import PhysicsError, SimulationSetup
from drivetrain_trainer.physics.world_batch import PooledBatch
from drivetrain_trainer.tasks.assets import gymnasium_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOPPER = """
<mujoco model="hopping_ball">
  <option timestep="0.005"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <body name="ball" pos="0 0 0.12">
      <joint name="x" type="slide" axis="1 0 0"/>
      <joint name="z" type="slide" axis="0 0 1"/>
      <geom type="sphere" size="0.1" mass="1"/>
      <site name="top" pos="0 0 0.1"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="push" joint="x" ctrlrange="-1 1" ctrllimited="true"/>
  </actuator>
</mujoco>
"""

POOLED = frozenset({"xpos"})
BLOCKED = frozenset({"xpos", "cfrc_ext"})
BOTH = pytest.mark.parametrize("outputs", [POOLED, BLOCKED], ids=["pooled", "blocked"])


def make(
    outputs: frozenset[str] = POOLED, worlds: int = 4, threads: int = 1, model: Any = HOPPER
) -> MujocoPhysics:
    return MujocoPhysics(
        SimulationSetup(model=model, num_worlds=worlds, num_threads=threads, outputs=outputs)
    )


def reset_all(physics: MujocoPhysics) -> None:
    n, model = physics.num_worlds, physics.model
    physics.reset(torch.arange(n), model.initial_qpos.repeat(n, 1), model.initial_qvel.repeat(n, 1))


@BOTH
def test_the_outputs_decide_which_batch_steps(outputs: frozenset[str]) -> None:
    kind = BlockedBatch if "cfrc_ext" in outputs else PooledBatch
    assert isinstance(make(outputs).world_batch, kind)


@BOTH
@pytest.mark.parametrize("name", ["ant.xml", "hopper.xml"])
def test_states_and_outputs_equal_a_loop_over_mj_step(name: str, outputs: frozenset[str]) -> None:
    path = gymnasium_model(name)
    physics = make(outputs, worlds=3, threads=2, model=path)
    reset_all(physics)
    model = mujoco.MjModel.from_xml_path(str(path))
    references = [mujoco.MjData(model) for _ in range(3)]
    generator = torch.Generator().manual_seed(0)
    largest_force = 0.0
    for _ in range(100):
        physics.ctrl.copy_(torch.rand(3, model.nu, generator=generator) * 2 - 1)
        assert physics.step(4) is None
        for world, data in enumerate(references):
            data.ctrl[:] = physics.ctrl[world].numpy()
            mujoco.mj_step(model, data, nstep=4)
            mujoco.mj_rnePostConstraint(model, data)
            np.testing.assert_array_equal(physics.qpos[world].numpy(), data.qpos)
            np.testing.assert_array_equal(physics.qvel[world].numpy(), data.qvel)
            for field in outputs:
                np.testing.assert_array_equal(
                    physics.output(field)[world].numpy(), getattr(data, field)
                )
        largest_force = max(largest_force, *(float(abs(d.cfrc_ext).max()) for d in references))
    assert largest_force > 1  # there was contact to speak of


@BOTH
def test_a_reset_leaves_other_worlds_alone_and_clears_its_own(outputs: frozenset[str]) -> None:
    physics = make(outputs)
    reset_all(physics)
    physics.ctrl.fill_(1.0)
    for _ in range(20):
        physics.step(3)
    warm = physics.world_batch.state("qacc_warmstart")
    assert warm[:, 1].abs().min() > 0
    kept = physics.qpos[[0, 2]].clone(), physics.qvel[[0, 2]].clone(), warm[[0, 2]].clone()
    heights = physics.output("xpos")[:, 1, 2].clone()
    qpos = torch.tensor([[1.0, 0.5], [2.0, 0.7]], dtype=torch.float64)
    physics.reset(torch.tensor([1, 3]), qpos, torch.zeros(2, 2, dtype=torch.float64))
    assert torch.equal(physics.qpos[[1, 3]], qpos)
    assert torch.equal(physics.qvel[[1, 3]], torch.zeros(2, 2, dtype=torch.float64))
    assert not physics.ctrl[[1, 3]].any()
    assert torch.equal(physics.qpos[[0, 2]], kept[0])
    assert torch.equal(physics.qvel[[0, 2]], kept[1])
    assert torch.equal(warm[[0, 2]], kept[2])
    xpos = physics.output("xpos")[:, 1, 2]  # current for the worlds that were reset
    assert torch.allclose(xpos[[1, 3]], qpos[:, 1] + 0.12)
    assert torch.equal(xpos[[0, 2]], heights[[0, 2]])
    if "cfrc_ext" in outputs:
        assert not physics.output("cfrc_ext")[[1, 3]].any()


@BOTH
@pytest.mark.parametrize(
    ("field", "value", "warning"),
    [
        ("qvel", torch.inf, "BADQVEL"),
        ("qvel", torch.nan, "BADQVEL"),
        ("qvel", 1e11, "BADQVEL"),
        ("qpos", torch.nan, "BADQPOS"),
        ("ctrl", torch.nan, "BADCTRL"),
    ],
)
def test_a_silent_reset_is_reported_every_time(
    outputs: frozenset[str], field: str, value: float, warning: str
) -> None:
    physics = make(outputs)
    reset_all(physics)
    for _ in range(3):  # MuJoCo's own counter stands at 1 after each of them
        getattr(physics, field)[2, 0] = value
        found = physics.step(4)
        assert found is not None
        assert found.worlds.tolist() == [False, False, True, False]
        assert found.counts == {warning: 1}
        assert torch.isfinite(physics.qpos).all()  # nothing else tells
        physics.ctrl.zero_()
        assert physics.step(4) is None


@BOTH
def test_an_acceleration_that_explodes_within_the_step_is_reported(
    outputs: frozenset[str],
) -> None:
    physics = make(outputs, model=gymnasium_model("half_cheetah.xml"))
    reset_all(physics)
    physics.qvel[1] = 1e8
    found = physics.step(5)
    assert found is not None
    assert found.worlds.tolist() == [False, True, False, False]
    assert found.counts == {"BADQACC": 1}


def test_a_full_contact_buffer_is_counted_and_the_world_goes_on() -> None:
    balls = "".join(
        f'<body pos="0 0 {0.1 + 0.01 * i}"><freejoint/><geom size="0.1"/></body>' for i in range(9)
    )
    physics = make(
        model='<mujoco><size memory="20K"/><worldbody><geom type="plane" size="1 1 1"/>'
        f"{balls}</worldbody></mujoco>",
        worlds=2,
    )
    reset_all(physics)
    found = physics.step(1)
    assert found is not None
    assert set(found.counts) <= {"CONTACTFULL", "CNSTRFULL"}
    assert not found.worlds.any()


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"xpso"}, "'xpso' is not a field that a step computes; did you mean xpos"),
        ({"qpos"}, "'qpos' is not a field"),
        ({"subtree_linvel"}, "'subtree_linvel' is not a field that a step computes"),
        ({"efc_force"}, "'efc_force' is not a field"),
    ],
)
def test_an_output_that_a_step_does_not_compute_is_refused(outputs: set[str], message: str) -> None:
    with pytest.raises(PhysicsError, match=message):
        make(frozenset(outputs))


def test_an_output_that_was_not_asked_for_is_refused() -> None:
    with pytest.raises(PhysicsError, match="'xipos' was not asked for; the set-up has: xpos"):
        make().output("xipos")


def test_names_of_the_model_are_found_or_suggested() -> None:
    model = make().model
    assert model.body("ball") == 1
    assert model.site("top") == 0
    assert model.actuator_names == ("push",)
    with pytest.raises(PhysicsError, match="no body 'bal'; did you mean ball"):
        model.body("bal")
    with pytest.raises(PhysicsError, match="no site 'wheel'; it has: top"):
        model.site("wheel")


@pytest.mark.parametrize("model", ["<mujoco><nonsense/></mujoco>", "not XML at all"])
def test_a_model_that_does_not_load_is_named(model: str, tmp_path: Path) -> None:
    with pytest.raises(PhysicsError, match="does not load the MJCF text"):
        make(model=model)
    with pytest.raises(PhysicsError, match=r"does not load .*missing\.xml"):
        make(model=tmp_path / "missing.xml")


def test_a_device_is_refused_by_name() -> None:
    setup = SimulationSetup(model=HOPPER, num_worlds=1, device="cuda:0")
    with pytest.raises(PhysicsError, match="host memory, not on 'cuda:0'"):
        make_physics(Simulator.MUJOCO, setup)


@BOTH
def test_closed_worlds_refuse_calls(outputs: frozenset[str]) -> None:
    physics = make(outputs)
    physics.close()
    physics.close()
    calls: tuple[Callable[[], object], ...] = (
        lambda: physics.step(1),
        lambda: reset_all(physics),
        lambda: physics.render_state(0),
    )
    for call in calls:
        with pytest.raises(PhysicsError, match="closed"):
            call()


def test_memory_stays_as_long_as_it_is_viewed() -> None:
    physics = make(POOLED)
    batch = physics.world_batch
    assert isinstance(batch, PooledBatch)
    alive = weakref.ref(batch._batch._b)
    del batch
    check_lifetime(physics, alive, physics.qpos, physics.output("xpos"))


def test_a_blocks_memory_stays_as_long_as_it_is_viewed() -> None:
    block = PersistentBlock(mujoco.MjModel.from_xml_string(HOPPER), 2, 1)
    block.forward(range(2))
    check_lifetime(block, weakref.ref(block._handle), block.rows, block.output("xpos"))


def check_lifetime(owner: Any, alive: weakref.ref[Any], *views: torch.Tensor) -> None:
    """Views outlive the last other reference to what owns their memory, and end with it."""
    held, expected = list(views), [view.clone() for view in views]
    del views
    getattr(owner, "close", int)()
    owner.__dict__.clear()
    gc.collect()
    assert alive() is not None
    assert all(torch.equal(*pair) for pair in zip(held, expected, strict=True))
    held.clear()
    gc.collect()
    assert alive() is None


def test_a_world_to_draw_is_a_copy() -> None:
    physics = make()
    reset_all(physics)
    physics.qpos[1, 0] = 0.25
    state = physics.render_state(1)
    assert isinstance(state.model, mujoco.MjModel)
    assert state.qpos.tolist() == [0.25, 0.0]
    state.qpos.fill_(9.0)
    assert physics.qpos[1, 0] == 0.25


def test_worlds_are_not_pickled_nor_used_after_a_fork() -> None:
    physics = make()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(physics)
    physics._pid = os.getpid() + 1  # as a forked child would find it
    with pytest.raises(PhysicsError, match="do not survive a fork"):
        physics.step(1)


def test_no_log_file_is_written_where_the_process_works(tmp_path: Path) -> None:
    script = (
        "from drivetrain_trainer.physics.mujoco_backend import MujocoPhysics\n"
        "from drivetrain_trainer.physics.port import SimulationSetup\n"
        "from drivetrain_trainer.tasks.assets import gymnasium_model\n"
        "setup = SimulationSetup(model=gymnasium_model('half_cheetah.xml'), num_worlds=2)\n"
        "physics = MujocoPhysics(setup)\n"
        "physics.qvel[0] = float('nan')\n"
        "assert physics.step(1) is not None\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, timeout=120)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.array([0, 4], np.int32), "must ascend within 0..3"),
        (np.array([-1], np.int32), "must ascend within 0..3"),
        (np.array([2, 1], np.int32), "must ascend"),
        (np.array([1, 1], np.int32), "must ascend"),
        (np.array([0, 1], np.int64), "int32"),
        (np.array([[0]], np.int32), "vector"),
    ],
)
def test_indices_are_checked_before_they_reach_c(ids: Any, message: str) -> None:
    batch = make(BLOCKED).world_batch
    for call in (batch.clear, batch.forward):
        with pytest.raises(PhysicsError, match=message):
            call(ids)


@pytest.mark.parametrize("substeps", [0, -1, 2**31])
def test_substeps_are_checked_before_they_reach_c(substeps: int) -> None:
    with pytest.raises(PhysicsError, match="substeps must be from 1"):
        make(BLOCKED).step(substeps)


@pytest.mark.parametrize("worlds", [range(0), range(3)])
def test_a_block_is_not_called_for_more_worlds_than_it_has(worlds: range) -> None:
    block = PersistentBlock(mujoco.MjModel.from_xml_string(HOPPER), 2, 1)
    calls = (block.clear, block.forward, partial(block.step, 1))
    for call in calls:
        with pytest.raises(PhysicsError, match=f"a block of 2 worlds was called for {len(worlds)}"):
            call(worlds)


@pytest.mark.parametrize(("worlds", "threads"), [(0, 1), (1, 0), (-3, 1)])
@BOTH
def test_counts_are_checked_before_they_reach_c(
    outputs: frozenset[str], worlds: int, threads: int
) -> None:
    with pytest.raises(PhysicsError):
        make(outputs, worlds=worlds, threads=threads)


def test_an_error_that_mujoco_raises_names_the_world() -> None:
    physics = make()
    reset_all(physics)
    batch = physics.world_batch
    assert isinstance(batch, PooledBatch)
    batch._batch.expand("actuator_trntype")[2] = 99  # an unknown transmission: mj_step raises
    with pytest.raises(PhysicsError, match="simulation 2"):
        physics.step(1)


def test_an_error_in_a_block_names_the_world_that_stood_in_the_place() -> None:
    model = mujoco.MjModel.from_xml_string(HOPPER)
    model.actuator_trntype[0] = 99
    block = PersistentBlock(model, 2, 1)
    with pytest.raises(PhysicsError, match="MuJoCo raised in 2 worlds; world 40: "):
        block.step(1, [40, 41])


def test_a_model_that_sleeps_has_no_contact_force_outputs() -> None:
    model = HOPPER.replace(
        '<option timestep="0.005"/>', '<option timestep="0.005"><flag sleep="enable"/></option>'
    )
    with pytest.raises(PhysicsError, match="sleeps"):
        make(BLOCKED, model=model)


@pytest.mark.parametrize("worlds", [1, 7, 8, 9, 20])
@pytest.mark.parametrize("threads", [1, 2])
def test_worlds_are_stepped_alike_however_blocks_divide_them(worlds: int, threads: int) -> None:
    """Against the other batch, over resets of some, with a different push in each world."""
    physics = [make(outputs, worlds, threads) for outputs in (POOLED, BLOCKED)]
    generator = torch.Generator().manual_seed(worlds)
    for each in physics:
        reset_all(each)
    for step in range(30):
        push = torch.rand(worlds, 1, generator=generator, dtype=torch.float64)
        ids = (torch.rand(worlds, generator=generator) < 0.2).nonzero().squeeze(1)
        qpos = torch.rand(len(ids), 2, generator=generator, dtype=torch.float64)
        for each in physics:
            each.ctrl.copy_(push)
            assert each.step(3) is None
            each.reset(ids, qpos, torch.zeros_like(qpos))
            if step == 9:
                each.qvel[worlds // 2] = torch.nan
                found = each.step(1)
                assert found is not None
                assert found.worlds.nonzero().flatten().tolist() == [worlds // 2]
        for name in ("qpos", "qvel", "ctrl", "qacc_warmstart"):
            first, second = (each.world_batch.state(name) for each in physics)
            assert torch.equal(first, second), (step, name)
        assert torch.equal(physics[0].output("xpos"), physics[1].output("xpos"))


def _step_in_child(queue: Any) -> None:
    physics = make(threads=2)
    reset_all(physics)
    physics.step(1)
    queue.put(physics.qpos[0].tolist())


def test_worlds_are_made_and_stepped_in_a_spawned_process() -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    child = context.Process(target=_step_in_child, args=(queue,))
    physics = make(threads=2)  # the parent has threads of its own meanwhile
    child.start()
    child.join(60)
    assert child.exitcode == 0
    reset_all(physics)
    physics.step(1)
    assert queue.get() == physics.qpos[0].tolist()
