"""Pusher-v5: an arm of seven joints that shall push a cylinder to a goal."""

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
    from drivetrain_trainer.envs.vector_env import EnvRequest
    from drivetrain_trainer.tasks.parameters import PusherParameters

_JOINTS = 7
_GOAL_CLEARANCE = 0.17

_fingertip = observations.body_position("tips_arm")
_object = observations.body_position("object")
_goal = observations.body_position("goal")


def make(request: EnvRequest, parameters: PusherParameters) -> ManagerEnv:
    """Pusher-v5 for a request."""
    return ManagerEnv(define(parameters), request)


def define(parameters: PusherParameters) -> EnvDefinition:
    """Pusher-v5 as terms; episodes end by their length alone."""
    return EnvDefinition(
        model=gymnasium_model("pusher_v5.xml"),
        substeps=5,
        episode_length=parameters.episode_length,
        outputs=frozenset({"xpos"}),
        observations=(
            ObservationTerm("position", observations.positions(0, _JOINTS)),
            ObservationTerm("velocity", observations.velocities(0, _JOINTS)),
            ObservationTerm("fingertip_position", _fingertip),
            ObservationTerm("object_position", _object),
            ObservationTerm("goal_position", _goal),
        ),
        rewards=(
            RewardTerm("dist", rewards.distance(_object, _goal), -parameters.reward_dist_weight),
            RewardTerm("ctrl", rewards.squared_action, -parameters.reward_control_weight),
            RewardTerm(
                "near", rewards.distance(_object, _fingertip), -parameters.reward_near_weight
            ),
        ),
        resets=(
            ResetTerm("velocity", resets.add_uniform_velocities(0.005)),
            ResetTerm("object", _place_object),
        ),
    )


def _place_object(draft: ResetDraft, rng: ManagerRng) -> None:
    """Rest the cylinder on the table, clear of the goal, which lies at the origin."""
    dtype = draft.qpos.dtype

    def sample(count: int) -> Tensor:
        return torch.cat(
            (
                rng.uniform((count, 1), -0.3, 0.0, dtype=dtype),
                rng.uniform((count, 1), -0.2, 0.2, dtype=dtype),
            ),
            dim=1,
        )

    draft.qpos[:, -4:-2] = resets.sample_until(
        draft.count,
        sample,
        lambda place: torch.linalg.vector_norm(place, dim=1) > _GOAL_CLEARANCE,
    )
    draft.qpos[:, -2:] = 0.0
    draft.qvel[:, -4:] = 0.0
