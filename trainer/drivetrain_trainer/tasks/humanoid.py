"""Humanoid-v5: a body of 17 joints that shall walk along x."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.envs.definition import EnvDefinition, RewardTerm, TerminationTerm
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.terms import rewards, terminations
from drivetrain_trainer.tasks.assets import gymnasium_model
from drivetrain_trainer.tasks.humanoid_body import (
    OBSERVATIONS,
    OUTPUTS,
    SUBSTEPS,
    contact_cost,
    reset_terms,
)

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.envs.state import TermState
    from drivetrain_trainer.envs.vector_env import EnvRequest
    from drivetrain_trainer.tasks.parameters import HumanoidParameters


def make(request: EnvRequest, parameters: HumanoidParameters) -> ManagerEnv:
    """Humanoid-v5 for a request."""
    return ManagerEnv(define(parameters), request)


def define(parameters: HumanoidParameters) -> EnvDefinition:
    """Humanoid-v5 as terms."""
    unhealthy = terminations.outside(2, parameters.healthy_z_min, parameters.healthy_z_max)
    ending = (TerminationTerm("unhealthy", unhealthy),)
    contact = contact_cost(parameters.contact_cost_weight, parameters.contact_cost_max)
    return EnvDefinition(
        model=gymnasium_model("humanoid.xml"),
        substeps=SUBSTEPS,
        episode_length=parameters.episode_length,
        outputs=OUTPUTS | {"xipos"},
        tracked={"mass_center_x": _mass_center_x},
        observations=OBSERVATIONS,
        rewards=(
            RewardTerm("forward", rewards.speed("mass_center_x"), parameters.forward_reward_weight),
            RewardTerm("survive", rewards.while_false(unhealthy), parameters.healthy_reward),
            RewardTerm("ctrl", rewards.squared_control, -parameters.ctrl_cost_weight),
            RewardTerm("contact", contact, -1.0),
        ),
        terminations=ending if parameters.terminate_when_unhealthy else (),
        resets=reset_terms(parameters.reset_noise_scale),
    )


def _mass_center_x(state: TermState) -> Tensor:
    mass = state.model.body_mass
    return state.output("xipos")[:, :, 0] @ mass / mass.sum()
