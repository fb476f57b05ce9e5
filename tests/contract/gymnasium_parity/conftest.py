"""The eleven tasks beside their references, and what of one is what of the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.mujoco import MujocoEnv

from drivetrain_api.tasks import load_task
from drivetrain_api.training import TaskConfig
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.envs.manager_env import ManagerEnv

LOCOMOTION = {"forward": "reward_forward", "ctrl": "reward_ctrl"}
WALKING = {**LOCOMOTION, "survive": "reward_survive"}
WITH_CONTACT = {**WALKING, "contact": "reward_contact"}


@dataclass(frozen=True)
class Case:
    """A task, its reference, and which of the reference's info keys each reward term is."""

    task: str
    reference: str
    terms: Mapping[str, str]


CASES = (
    Case("ant", "Ant-v5", WITH_CONTACT),
    Case("half_cheetah", "HalfCheetah-v5", LOCOMOTION),
    Case("hopper", "Hopper-v5", WALKING),
    Case("humanoid", "Humanoid-v5", WITH_CONTACT),
    Case(
        "humanoid_standup",
        "HumanoidStandup-v5",
        {
            "linup": "reward_linup",
            "quadctrl": "reward_quadctrl",
            "impact": "reward_impact",
            "survive": "",
        },
    ),
    Case(
        "inverted_double_pendulum",
        "InvertedDoublePendulum-v5",
        {
            "survive": "reward_survive",
            "distance": "distance_penalty",
            "velocity": "velocity_penalty",
        },
    ),
    Case("inverted_pendulum", "InvertedPendulum-v5", {"survive": "reward_survive"}),
    Case(
        "pusher",
        "Pusher-v5",
        {"dist": "reward_dist", "ctrl": "reward_ctrl", "near": "reward_near"},
    ),
    Case("reacher", "Reacher-v5", {"dist": "reward_dist", "ctrl": "reward_ctrl"}),
    Case("swimmer", "Swimmer-v5", LOCOMOTION),
    Case("walker2d", "Walker2d-v5", WALKING),
)


class Reference:
    """A gymnasium environment that can be put into a state of ours."""

    def __init__(self, name: str) -> None:
        self.env: gymnasium.Env[Any, Any] = gymnasium.make(name, disable_env_checker=True)
        base = self.env.unwrapped
        assert isinstance(base, MujocoEnv)
        self.base = base

    def put(self, qpos: Any, qvel: Any) -> Any:
        """Start an episode (and its time limit) in a state; the observation there."""
        self.env.reset()
        _reset_data(self.base)
        self.base.set_state(qpos, qvel)
        return self.base._get_obs()


def _reset_data(base: MujocoEnv) -> None:
    import mujoco  # noqa: PLC0415  # the reference has imported it by now

    mujoco.mj_resetData(base.model, base.data)


@pytest.fixture(params=CASES, ids=lambda case: case.task)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def make_ours(case: Case) -> Iterator[Any]:
    made: list[ManagerEnv] = []

    def make(num_envs: int, **settings: Any) -> ManagerEnv:
        task = load_task(TaskConfig(name=case.task))
        env = make_env(task, num_envs=num_envs, seed=7, **settings)
        assert isinstance(env, ManagerEnv)
        made.append(env)
        return env

    yield make
    for env in made:
        env.close()


@pytest.fixture
def make_reference(case: Case) -> Iterator[Any]:
    made: list[Reference] = []

    def make() -> Reference:
        made.append(Reference(case.reference))
        return made[-1]

    yield make
    for reference in made:
        reference.env.close()
