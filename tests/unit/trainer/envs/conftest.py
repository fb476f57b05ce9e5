"""A point on a rail: small enough to compute by hand what must come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from drivetrain_trainer.envs.definition import (
    EnvDefinition,
    ObservationTerm,
    ResetTerm,
    RewardTerm,
    TerminationTerm,
)
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.state import TermState
from drivetrain_trainer.envs.terms import observations, resets, rewards
from drivetrain_trainer.envs.vector_env import EnvRequest

RAIL = """
<mujoco model="rail">
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody>
    <body name="point">
      <joint name="x" type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.1" mass="1" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="push" joint="x" ctrlrange="-1 3" ctrllimited="true"/>
  </actuator>
</mujoco>
"""


def far(state: TermState) -> torch.Tensor:
    return state.qpos[:, 0] > 1.0


DEFINITION = EnvDefinition(
    model=RAIL,
    substeps=2,
    episode_length=5,
    tracked={"x": rewards.coordinate(0)},
    observations=(
        ObservationTerm("position", observations.positions()),
        ObservationTerm("velocity", observations.velocities()),
    ),
    rewards=(
        RewardTerm("forward", rewards.speed("x"), 2.0),
        RewardTerm("ctrl", rewards.squared_action, -0.5),
    ),
    terminations=(TerminationTerm("far", far),),
    resets=(
        ResetTerm("position", resets.add_uniform_positions(0.1)),
        ResetTerm("velocity", resets.add_normal_velocities(0.1)),
    ),
)

MakeRail = Callable[..., ManagerEnv]


@pytest.fixture
def definition() -> EnvDefinition:
    return DEFINITION


@pytest.fixture
def make_rail() -> Iterator[MakeRail]:
    """Rails, by the definition's fields and the request's."""
    made: list[ManagerEnv] = []

    def make(num_envs: int = 3, seed: int = 0, num_threads: int = 1, **changes: Any) -> ManagerEnv:
        request = EnvRequest(num_envs=num_envs, seed=seed, num_threads=num_threads)
        made.append(ManagerEnv(replace(DEFINITION, **changes), request))
        return made[-1]

    yield make
    for env in made:
        env.close()
