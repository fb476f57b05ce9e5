"""InvertedDoublePendulum-v5: a cart that shall keep two linked poles upright."""

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
    from drivetrain_trainer.tasks.parameters import InvertedDoublePendulumParameters

_LIMIT = 10.0
_FALLEN_HEIGHT = 1.0
_UPRIGHT_HEIGHT = 2.0


def make(request: EnvRequest, parameters: InvertedDoublePendulumParameters) -> ManagerEnv:
    """InvertedDoublePendulum-v5 for a request."""
    return ManagerEnv(define(parameters), request)


def define(parameters: InvertedDoublePendulumParameters) -> EnvDefinition:
    """InvertedDoublePendulum-v5 as terms."""
    return EnvDefinition(
        model=gymnasium_model("inverted_double_pendulum.xml"),
        substeps=5,
        episode_length=parameters.episode_length,
        outputs=frozenset({"site_xpos", "qfrc_constraint"}),
        observations=(
            ObservationTerm("cart_position", observations.positions(0, 1)),
            ObservationTerm("angle_sine", _angle_sine),
            ObservationTerm("angle_cosine", _angle_cosine),
            ObservationTerm("velocity", observations.velocities(limit=_LIMIT)),
            ObservationTerm("cart_constraint_force", _cart_constraint_force),
        ),
        rewards=(
            RewardTerm("survive", rewards.while_false(_fallen), parameters.healthy_reward),
            RewardTerm("distance", _distance_penalty, -1.0),
            RewardTerm("velocity", _velocity_penalty, -1.0),
        ),
        terminations=(TerminationTerm("fallen", _fallen),),
        resets=(
            ResetTerm("position", resets.add_uniform_positions(parameters.reset_noise_scale)),
            ResetTerm("velocity", resets.add_normal_velocities(parameters.reset_noise_scale)),
        ),
    )


def _tip(state: TermState) -> Tensor:
    return state.output("site_xpos")[:, 0]


def _fallen(state: TermState) -> Tensor:
    return _tip(state)[:, 2] <= _FALLEN_HEIGHT


def _angle_sine(state: TermState) -> Tensor:
    return state.qpos[:, 1:].sin()


def _angle_cosine(state: TermState) -> Tensor:
    return state.qpos[:, 1:].cos()


def _cart_constraint_force(state: TermState) -> Tensor:
    return state.output("qfrc_constraint")[:, :1].clamp(-_LIMIT, _LIMIT)


def _distance_penalty(state: TermState) -> Tensor:
    x, _, height = _tip(state).unbind(1)
    return 0.01 * x.square() + (height - _UPRIGHT_HEIGHT).square()


def _velocity_penalty(state: TermState) -> Tensor:
    first, second = state.qvel[:, 1], state.qvel[:, 2]
    return 1e-3 * first.square() + 5e-3 * second.square()
