"""Hopper-v5: a planar one-legged body that shall hop along x."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from drivetrain_trainer.envs.definition import (
    EnvDefinition,
    ObservationTerm,
    Quantity,
    ResetTerm,
    RewardTerm,
    TerminationTerm,
)
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.terms import observations, resets, rewards, terminations
from drivetrain_trainer.tasks.assets import gymnasium_model

if TYPE_CHECKING:
    from drivetrain_trainer.envs.state import TermState
    from drivetrain_trainer.envs.vector_env import EnvRequest
    from drivetrain_trainer.tasks.parameters import HopperParameters

_VELOCITY_LIMIT = 10.0


def make(request: EnvRequest, parameters: HopperParameters) -> ManagerEnv:
    """Hopper-v5 for a request."""
    return ManagerEnv(define(parameters), request)


def define(parameters: HopperParameters) -> EnvDefinition:
    """Hopper-v5 as terms."""
    lean = parameters.healthy_angle_limit
    unhealthy = terminations.any_of(
        terminations.outside(1, parameters.healthy_z_min, parameters.healthy_z_max),
        terminations.outside(2, -lean, lean),
        _state_beyond(parameters.healthy_state_limit),
    )
    ending = (TerminationTerm("unhealthy", unhealthy),)
    return EnvDefinition(
        model=gymnasium_model("hopper.xml"),
        substeps=4,
        episode_length=parameters.episode_length,
        tracked={"x": rewards.coordinate(0)},
        observations=(
            ObservationTerm("position", observations.positions(1)),
            ObservationTerm("velocity", observations.velocities(limit=_VELOCITY_LIMIT)),
        ),
        rewards=(
            RewardTerm("forward", rewards.speed("x"), parameters.forward_reward_weight),
            RewardTerm("survive", rewards.while_false(unhealthy), parameters.healthy_reward),
            RewardTerm("ctrl", rewards.squared_action, -parameters.ctrl_cost_weight),
        ),
        terminations=ending if parameters.terminate_when_unhealthy else (),
        resets=(
            ResetTerm("position", resets.add_uniform_positions(parameters.reset_noise_scale)),
            ResetTerm("velocity", resets.add_uniform_velocities(parameters.reset_noise_scale)),
        ),
    )


def _state_beyond(limit: float) -> Quantity:
    """A position from the lean on, or a velocity, is not within +-limit."""

    def compute(state: TermState) -> Tensor:
        largest = torch.maximum(
            state.qpos[:, 2:].abs().amax(1),
            state.qvel.abs().amax(1),
        )
        return ~(largest < limit)

    return compute
