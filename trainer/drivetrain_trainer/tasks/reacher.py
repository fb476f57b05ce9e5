"""Reacher-v5: a planar arm of two joints that shall touch a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from drivetrain_trainer.envs.definition import (
    EnvDefinition,
    ObservationTerm,
    ResetDraft,
    ResetTerm,
    RewardTerm,
)
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.terms import observations, resets, rewards
from drivetrain_trainer.tasks.assets import gymnasium_model

if TYPE_CHECKING:
    from drivetrain_trainer.envs.rng import ManagerRng
    from drivetrain_trainer.envs.state import TermState
    from drivetrain_trainer.envs.vector_env import EnvRequest
    from drivetrain_trainer.tasks.parameters import ReacherParameters

_JOINTS = 2
_TARGET_RADIUS = 0.2

_fingertip = observations.body_position("fingertip")
_target = observations.body_position("target")


def make(request: EnvRequest, parameters: ReacherParameters) -> ManagerEnv:
    """Reacher-v5 for a request."""
    return ManagerEnv(define(parameters), request)


def define(parameters: ReacherParameters) -> EnvDefinition:
    """Reacher-v5 as terms; episodes end by their length alone."""
    return EnvDefinition(
        model=gymnasium_model("reacher.xml"),
        substeps=2,
        episode_length=parameters.episode_length,
        outputs=frozenset({"xpos"}),
        observations=(
            ObservationTerm("angle_cosine", _angle_cosine),
            ObservationTerm("angle_sine", _angle_sine),
            ObservationTerm("target_position", observations.positions(_JOINTS)),
            ObservationTerm("velocity", observations.velocities(0, _JOINTS)),
            ObservationTerm("fingertip_to_target", _fingertip_to_target),
        ),
        rewards=(
            RewardTerm(
                "dist", rewards.distance(_fingertip, _target), -parameters.reward_dist_weight
            ),
            RewardTerm("ctrl", rewards.squared_action, -parameters.reward_control_weight),
        ),
        resets=(
            ResetTerm("position", resets.add_uniform_positions(0.1)),
            ResetTerm("velocity", resets.add_uniform_velocities(0.005)),
            ResetTerm("target", _place_target),
        ),
    )


def _angle_cosine(state: TermState) -> Tensor:
    return state.qpos[:, :_JOINTS].cos()


def _angle_sine(state: TermState) -> Tensor:
    return state.qpos[:, :_JOINTS].sin()


def _fingertip_to_target(state: TermState) -> Tensor:
    return (_fingertip(state) - _target(state))[:, :2]


def _place_target(draft: ResetDraft, rng: ManagerRng) -> None:
    """Rest the target somewhere in the disc around the arm's base, each place alike."""
    dtype = draft.qpos.dtype
    draft.qpos[:, -2:] = resets.sample_until(
        draft.count,
        lambda n: rng.uniform((n, 2), -_TARGET_RADIUS, _TARGET_RADIUS, dtype=dtype),
        lambda place: torch.linalg.vector_norm(place, dim=1) < _TARGET_RADIUS,
    )
    draft.qvel[:, -2:] = 0.0
