"""Ant-v5: a four-legged body that shall run along x."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.envs.definition import (
    EnvDefinition,
    ObservationTerm,
    Quantity,
    ResetTerm,
    RewardTerm,
    TerminationTerm,
)
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.terms import observations, resets, rewards
from drivetrain_trainer.tasks.assets import gymnasium_model

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.envs.state import TermState
    from drivetrain_trainer.envs.vector_env import EnvRequest
    from drivetrain_trainer.tasks.parameters import AntParameters


def make(request: EnvRequest, parameters: AntParameters) -> ManagerEnv:
    """Ant-v5 for a request."""
    return ManagerEnv(define(parameters), request)


def define(parameters: AntParameters) -> EnvDefinition:
    """Ant-v5 as terms."""
    unhealthy = _outside_height(parameters.healthy_z_min, parameters.healthy_z_max)
    force_limit = parameters.contact_force_limit
    ending = (TerminationTerm("unhealthy", unhealthy),)
    return EnvDefinition(
        model=gymnasium_model("ant.xml"),
        substeps=5,
        episode_length=parameters.episode_length,
        outputs=frozenset({"xpos", "cfrc_ext"}),
        tracked={"torso_x": _torso_x},
        observations=(
            ObservationTerm("position", observations.positions(2)),
            ObservationTerm("velocity", observations.velocities()),
            ObservationTerm("contact_force", observations.output("cfrc_ext", 1, limit=force_limit)),
        ),
        rewards=(
            RewardTerm("forward", rewards.speed("torso_x"), parameters.forward_reward_weight),
            RewardTerm("survive", rewards.while_false(unhealthy), parameters.healthy_reward),
            RewardTerm("ctrl", rewards.squared_action, -parameters.ctrl_cost_weight),
            RewardTerm("contact", _contact(force_limit), -parameters.contact_cost_weight),
        ),
        terminations=ending if parameters.terminate_when_unhealthy else (),
        resets=(
            ResetTerm("position", resets.add_uniform_positions(parameters.reset_noise_scale)),
            ResetTerm("velocity", resets.add_normal_velocities(parameters.reset_noise_scale)),
        ),
    )


def _torso_x(state: TermState) -> Tensor:
    return state.output("xpos")[:, state.model.body("torso"), 0]


def _outside_height(low: float, high: float) -> Quantity:
    def compute(state: TermState) -> Tensor:
        height = state.qpos[:, 2]
        return ~((height >= low) & (height <= high))  # the bounds themselves are healthy here

    return compute


def _contact(limit: float) -> Quantity:
    def compute(state: TermState) -> Tensor:
        return state.output("cfrc_ext").clamp(-limit, limit).square().sum((1, 2))

    return compute
