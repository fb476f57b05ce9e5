"""HalfCheetah-v5: a planar two-legged body that shall run along x."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.envs.definition import (
    EnvDefinition,
    ObservationTerm,
    ResetTerm,
    RewardTerm,
)
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.terms import observations, resets, rewards
from drivetrain_trainer.tasks.assets import gymnasium_model

if TYPE_CHECKING:
    from drivetrain_trainer.envs.vector_env import EnvRequest
    from drivetrain_trainer.tasks.parameters import HalfCheetahParameters


def make(request: EnvRequest, parameters: HalfCheetahParameters) -> ManagerEnv:
    """HalfCheetah-v5 for a request."""
    return ManagerEnv(define(parameters), request)


def define(parameters: HalfCheetahParameters) -> EnvDefinition:
    """HalfCheetah-v5 as terms; episodes end by their length alone."""
    return EnvDefinition(
        model=gymnasium_model("half_cheetah.xml"),
        substeps=5,
        episode_length=parameters.episode_length,
        tracked={"x": rewards.coordinate(0)},
        observations=(
            ObservationTerm("position", observations.positions(1)),
            ObservationTerm("velocity", observations.velocities()),
        ),
        rewards=(
            RewardTerm("forward", rewards.speed("x"), parameters.forward_reward_weight),
            RewardTerm("ctrl", rewards.squared_action, -parameters.ctrl_cost_weight),
        ),
        resets=(
            ResetTerm("position", resets.add_uniform_positions(parameters.reset_noise_scale)),
            ResetTerm("velocity", resets.add_normal_velocities(parameters.reset_noise_scale)),
        ),
    )
