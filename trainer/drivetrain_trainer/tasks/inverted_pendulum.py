"""InvertedPendulum-v5: a cart that shall keep a pole upright."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.envs.definition import (
    EnvDefinition,
    ObservationTerm,
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
    from drivetrain_trainer.tasks.parameters import InvertedPendulumParameters

_ANGLE_LIMIT = 0.2


def make(request: EnvRequest, parameters: InvertedPendulumParameters) -> ManagerEnv:
    """InvertedPendulum-v5 for a request."""
    return ManagerEnv(define(parameters), request)


def define(parameters: InvertedPendulumParameters) -> EnvDefinition:
    """InvertedPendulum-v5 as terms."""
    return EnvDefinition(
        model=gymnasium_model("inverted_pendulum.xml"),
        substeps=2,
        episode_length=parameters.episode_length,
        observations=(
            ObservationTerm("position", observations.positions()),
            ObservationTerm("velocity", observations.velocities()),
        ),
        rewards=(RewardTerm("survive", rewards.while_false(_fallen)),),
        terminations=(TerminationTerm("fallen", _fallen),),
        resets=(
            ResetTerm("position", resets.add_uniform_positions(parameters.reset_noise_scale)),
            ResetTerm("velocity", resets.add_uniform_velocities(parameters.reset_noise_scale)),
        ),
    )


def _fallen(state: TermState) -> Tensor:
    return state.qpos[:, 1].abs() > _ANGLE_LIMIT
