"""A user's task that goes wrong at a known tick in a known environment, one way or another.

The reward of a sound row is its tick plus a quarter of its environment's number, so that the
rows of a replay say themselves where they are from.
"""

from __future__ import annotations

import torch
from torch import Tensor

from drivetrain_api.tasks import TaskParameters, TaskSpec
from drivetrain_api.training import Simulator
from drivetrain_trainer.envs.definition import EnvDefinition, ObservationTerm, ResetTerm, RewardTerm
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.state import TermState
from drivetrain_trainer.envs.terms import observations, resets
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
    <motor name="push" joint="x" gear="{gear}" ctrlrange="-{span} {span}"/>
  </actuator>
</mujoco>
"""


class PoisonParameters(TaskParameters):
    """What goes wrong, and when."""

    poisoned_from: int = -1
    """First tick of the poison, counted from 0; below 0 for none."""
    poisoned_ticks: int = 1
    """Ticks of it, one after the other."""
    poisoned_env: int = 1
    """Environment of it."""
    gear: float = 1.0
    """Force of a unit of control; 1e13 blows the simulation up."""


def rail(*, gear: float = 1.0, span: float = 1.0) -> str:
    """A point that is pushed by up to `span` units of control, each of `gear` newtons."""
    return RAIL.format(gear=gear, span=span)


def make(request: EnvRequest, parameters: PoisonParameters) -> ManagerEnv:
    made = 0  # a manager computes its terms once when it is made

    def tick(state: TermState) -> Tensor:
        nonlocal made
        now, made = made - 1, made + 1
        raw = now + 0.25 * torch.arange(state.num_envs, dtype=state.qpos.dtype)
        if 0 <= now - parameters.poisoned_from < parameters.poisoned_ticks:
            raw[parameters.poisoned_env] = torch.nan
        return raw

    definition = EnvDefinition(
        model=rail(gear=parameters.gear),
        substeps=1,
        episode_length=10,
        observations=(
            ObservationTerm("position", observations.positions()),
            ObservationTerm("velocity", observations.velocities()),
        ),
        rewards=(RewardTerm("tick", tick),),
        terminations=(),
        resets=(ResetTerm("position", resets.add_uniform_positions(0.1)),),
    )
    return ManagerEnv(definition, request)


task = TaskSpec(
    name="poisoned",
    factory="poisoned_task:make",
    observation_dim=2,
    action_dim=1,
    episode_length=10,
    simulators=frozenset({Simulator.MUJOCO, Simulator.MJWARP}),
    parameters=PoisonParameters,
)
