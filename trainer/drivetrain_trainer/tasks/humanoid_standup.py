"""HumanoidStandup-v5: the humanoid, lying, shall stand up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.envs.definition import EnvDefinition, RewardTerm
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.terms import rewards
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
    from drivetrain_trainer.tasks.parameters import HumanoidStandupParameters


def make(request: EnvRequest, parameters: HumanoidStandupParameters) -> ManagerEnv:
    """HumanoidStandup-v5 for a request."""
    return ManagerEnv(define(parameters), request)


def define(parameters: HumanoidStandupParameters) -> EnvDefinition:
    """HumanoidStandup-v5 as terms; episodes end by their length alone."""
    impact = contact_cost(parameters.impact_cost_weight, parameters.impact_cost_max)
    return EnvDefinition(
        model=gymnasium_model("humanoidstandup.xml"),
        substeps=SUBSTEPS,
        episode_length=parameters.episode_length,
        outputs=OUTPUTS,
        observations=OBSERVATIONS,
        rewards=(
            RewardTerm("linup", _height_rate, parameters.uph_cost_weight),
            RewardTerm("quadctrl", rewards.squared_control, -parameters.ctrl_cost_weight),
            RewardTerm("impact", impact, -1.0),
            RewardTerm("survive", rewards.always),
        ),
        resets=reset_terms(parameters.reset_noise_scale),
    )


def _height_rate(state: TermState) -> Tensor:
    """Height over the substep's duration, as Gymnasium has it: not a velocity."""
    return state.qpos[:, 2] / state.model.timestep
