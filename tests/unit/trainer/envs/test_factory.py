from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fake_backends import FakeNative

from drivetrain_api.errors import SpecError
from drivetrain_api.tasks import TaskSpec, load_task
from drivetrain_api.training import Simulator, TaskConfig
from drivetrain_trainer.envs.errors import EnvError
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.tasks.catalog import half_cheetah, hopper, humanoid

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_overrides_reach_the_environment() -> None:
    env = make_env(
        half_cheetah,
        num_envs=2,
        seed=0,
        overrides={"ctrl_cost_weight": 0.7, "episode_length": 9},
    )
    assert env.episode_length == 9
    assert [term.weight for term in env.terms if term.name == "ctrl"] == [-0.7]
    env.close()


def test_a_flag_takes_the_terminations_away() -> None:
    env = make_env(hopper, num_envs=1, seed=0, overrides={"terminate_when_unhealthy": False})
    assert "Episode_Termination/unhealthy" not in env.log_tags
    env.close()


def test_a_native_backend_is_told_its_device() -> None:
    task = load_task(TaskConfig(name="fake_native", entry_point="fake_backends:native"))
    for device in ("cpu", "cuda:1"):
        env = make_env(task, num_envs=1, seed=0, device=device)
        assert isinstance(env, ManagerEnv)
        assert isinstance(env._physics, FakeNative)
        assert env._physics.device == device
        env.close()


@pytest.mark.parametrize(
    ("overrides", "path", "message"),
    [
        (
            {"ctrl_cost_wieght": 1.0},
            "task.overrides.ctrl_cost_wieght",
            "task 'hopper' has no parameter 'ctrl_cost_wieght'; did you mean ctrl_cost_weight",
        ),
        ({"zzz": 1}, "task.overrides.zzz", "no parameter 'zzz'; it has: ctrl_cost_weight, "),
        (
            {"reset_noise_scale": -1.0},
            "task.overrides.reset_noise_scale",
            "must be a finite number from 0 to 1000000000; got -1.0",
        ),
        (
            {"reset_noise_scale": "1"},
            "task.overrides.reset_noise_scale",
            'must be a finite number from 0 to 1000000000; got "1"',
        ),
        (
            {"healthy_reward": True},
            "task.overrides.healthy_reward",
            "must be a finite number; got true",
        ),
        (
            {"episode_length": 0},
            "task.overrides.episode_length",
            "must be an integer from 1 to 2147483647; got 0",
        ),
        (
            {"episode_length": 10.5},
            "task.overrides.episode_length",
            "must be an integer from 1 to 2147483647; got 10.5",
        ),
        (
            {"terminate_when_unhealthy": 1},
            "task.overrides.terminate_when_unhealthy",
            "must be true or false; got 1",
        ),
        (
            {"healthy_z_min": 2.0, "healthy_z_max": 1.0},
            "task.overrides",
            "healthy_z_min 2.0 must be below healthy_z_max 1.0",
        ),
    ],
)
def test_a_refused_override_names_path_value_and_range(
    overrides: Mapping[str, Any], path: str, message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        make_env(hopper, num_envs=1, seed=0, overrides=overrides)
    (violation,) = caught.value.violations
    assert violation.path == path
    assert message in violation.message


def test_every_refused_override_is_listed_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        make_env(hopper, num_envs=1, seed=0, overrides={"nope": 1, "healthy_reward": "x", "zap": 2})
    assert {violation.path for violation in caught.value.violations} == {
        "task.overrides.nope",
        "task.overrides.zap",
        "task.overrides.healthy_reward",
    }


def test_a_task_without_parameters_takes_no_override() -> None:
    plain = TaskSpec("plain", "nowhere:make", observation_dim=1, action_dim=1, episode_length=1)
    with pytest.raises(SpecError, match="task 'plain' has no parameters to override"):
        make_env(plain, num_envs=1, seed=0, overrides={"x": 1})


def test_a_task_that_makes_other_sizes_than_it_declares_is_refused() -> None:
    wrong = replace(half_cheetah, observation_dim=18)
    with pytest.raises(EnvError, match=r"declares .* \(2, 18, 6\), its factory made \(2, 17, 6\)"):
        make_env(wrong, num_envs=2, seed=0)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("no_such_module:make", "No module named 'no_such_module'"),
        ("drivetrain_trainer.tasks.hopper:mke", "has no attribute 'mke'"),
        ("drivetrain_trainer.tasks.hopper", "does not load"),
        ("drivetrain_trainer.tasks.hopper:_VELOCITY_LIMIT", "not a function"),
    ],
)
def test_a_factory_that_does_not_load_is_named(factory: str, message: str) -> None:
    with pytest.raises(EnvError, match=f"task 'hopper' names the factory '{factory}'.*") as caught:
        make_env(replace(hopper, factory=factory), num_envs=1, seed=0)
    assert message in str(caught.value)


def test_a_simulator_that_the_task_does_not_run_on_is_refused() -> None:
    with pytest.raises(EnvError, match=r"task 'humanoid' runs on mujoco .*PGS.*, not on 'mjwarp'"):
        make_env(humanoid, num_envs=1, seed=0, sim=Simulator.MJWARP)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=r"env\.seed: from 0 to 4294967295"):
        make_env(hopper, num_envs=1, seed=seed)
