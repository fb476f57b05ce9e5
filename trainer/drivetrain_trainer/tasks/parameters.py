"""What manifests may override of the tasks that ship; the defaults are Gymnasium v5's.

Nothing here, nor in what it imports, needs torch or a simulator.
"""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from drivetrain_api.base import (  # noqa: TC001  # pydantic reads annotations at run time
    Finite,
    Flag,
    NonNegativeFloat,
    PositiveInt,
)
from drivetrain_api.tasks import TaskParameters


class EpisodeParameters(TaskParameters):
    """Of every task."""

    episode_length: PositiveInt = 1000
    """Steps after which an episode is truncated."""


class HealthyHeight(EpisodeParameters):
    """A body that must stay within a range of heights."""

    healthy_z_min: Finite = 0.0
    """Lowest healthy height of the torso, m."""
    healthy_z_max: Finite = 1e9
    """Greatest healthy height of the torso, m."""
    healthy_reward: Finite = 1.0
    """Reward of each healthy step."""
    terminate_when_unhealthy: Flag = True
    """End the episode in an unhealthy state."""

    @model_validator(mode="after")
    def _ordered_heights(self) -> Self:
        if not self.healthy_z_min < self.healthy_z_max:
            raise ValueError(
                f"healthy_z_min {self.healthy_z_min} must be below healthy_z_max"
                f" {self.healthy_z_max}"
            )
        return self


class AntParameters(HealthyHeight):
    """Ant-v5."""

    forward_reward_weight: Finite = 1.0
    """Factor of the torso's forward velocity, m/s."""
    ctrl_cost_weight: NonNegativeFloat = 0.5
    """Factor of the squared action."""
    contact_cost_weight: NonNegativeFloat = 5e-4
    """Factor of the squared, clipped contact forces."""
    contact_force_limit: NonNegativeFloat = 1.0
    """Contact forces are clipped to +- this, in the observation and in their cost."""
    healthy_z_min: Finite = 0.2
    """Lowest healthy height of the torso, m."""
    healthy_z_max: Finite = 1.0
    """Greatest healthy height of the torso, m."""
    reset_noise_scale: NonNegativeFloat = 0.1
    """Of the initial positions (uniform) and velocities (normal)."""


class HalfCheetahParameters(EpisodeParameters):
    """HalfCheetah-v5."""

    forward_reward_weight: Finite = 1.0
    """Factor of the forward velocity, m/s."""
    ctrl_cost_weight: NonNegativeFloat = 0.1
    """Factor of the squared action."""
    reset_noise_scale: NonNegativeFloat = 0.1
    """Of the initial positions (uniform) and velocities (normal)."""


class HopperParameters(HealthyHeight):
    """Hopper-v5."""

    forward_reward_weight: Finite = 1.0
    """Factor of the forward velocity, m/s."""
    ctrl_cost_weight: NonNegativeFloat = 1e-3
    """Factor of the squared action."""
    healthy_z_min: Finite = 0.7
    """Lowest healthy height of the torso, m; there is no greatest."""
    healthy_angle_limit: NonNegativeFloat = 0.2
    """Greatest healthy lean of the torso, rad."""
    healthy_state_limit: NonNegativeFloat = 100.0
    """Greatest healthy absolute value of the other positions and velocities."""
    reset_noise_scale: NonNegativeFloat = 5e-3
    """Of the initial positions and velocities (uniform)."""


class HumanoidParameters(HealthyHeight):
    """Humanoid-v5."""

    forward_reward_weight: Finite = 1.25
    """Factor of the centre of mass's forward velocity, m/s."""
    ctrl_cost_weight: NonNegativeFloat = 0.1
    """Factor of the squared controls."""
    contact_cost_weight: NonNegativeFloat = 5e-7
    """Factor of the squared contact forces."""
    contact_cost_max: NonNegativeFloat = 10.0
    """Greatest contact cost of a step."""
    healthy_reward: Finite = 5.0
    """Reward of each healthy step."""
    healthy_z_min: Finite = 1.0
    """Lowest healthy height of the torso, m."""
    healthy_z_max: Finite = 2.0
    """Greatest healthy height of the torso, m."""
    reset_noise_scale: NonNegativeFloat = 0.01
    """Of the initial positions and velocities (uniform)."""


class HumanoidStandupParameters(EpisodeParameters):
    """HumanoidStandup-v5."""

    uph_cost_weight: Finite = 1.0
    """Factor of the torso's height over the time step, m/s."""
    ctrl_cost_weight: NonNegativeFloat = 0.1
    """Factor of the squared controls."""
    impact_cost_weight: NonNegativeFloat = 5e-7
    """Factor of the squared contact forces."""
    impact_cost_max: NonNegativeFloat = 10.0
    """Greatest impact cost of a step."""
    reset_noise_scale: NonNegativeFloat = 0.01
    """Of the initial positions and velocities (uniform)."""


class InvertedDoublePendulumParameters(EpisodeParameters):
    """InvertedDoublePendulum-v5."""

    healthy_reward: Finite = 10.0
    """Reward of each step in which the tip is above 1 m."""
    reset_noise_scale: NonNegativeFloat = 0.1
    """Of the initial positions (uniform) and velocities (normal)."""


class InvertedPendulumParameters(EpisodeParameters):
    """InvertedPendulum-v5."""

    reset_noise_scale: NonNegativeFloat = 0.01
    """Of the initial positions and velocities (uniform)."""


class PusherParameters(EpisodeParameters):
    """Pusher-v5."""

    episode_length: PositiveInt = 100
    """Steps after which an episode is truncated."""
    reward_near_weight: NonNegativeFloat = 0.5
    """Factor of the distance between fingertip and object, m."""
    reward_dist_weight: NonNegativeFloat = 1.0
    """Factor of the distance between object and goal, m."""
    reward_control_weight: NonNegativeFloat = 0.1
    """Factor of the squared action."""


class ReacherParameters(EpisodeParameters):
    """Reacher-v5."""

    episode_length: PositiveInt = 50
    """Steps after which an episode is truncated."""
    reward_dist_weight: NonNegativeFloat = 1.0
    """Factor of the distance between fingertip and target, m."""
    reward_control_weight: NonNegativeFloat = 1.0
    """Factor of the squared action."""


class SwimmerParameters(EpisodeParameters):
    """Swimmer-v5."""

    forward_reward_weight: Finite = 1.0
    """Factor of the forward velocity, m/s."""
    ctrl_cost_weight: NonNegativeFloat = 1e-4
    """Factor of the squared action."""
    reset_noise_scale: NonNegativeFloat = 0.1
    """Of the initial positions and velocities (uniform)."""


class Walker2dParameters(HealthyHeight):
    """Walker2d-v5."""

    forward_reward_weight: Finite = 1.0
    """Factor of the forward velocity, m/s."""
    ctrl_cost_weight: NonNegativeFloat = 1e-3
    """Factor of the squared action."""
    healthy_z_min: Finite = 0.8
    """Lowest healthy height of the torso, m."""
    healthy_z_max: Finite = 2.0
    """Greatest healthy height of the torso, m."""
    healthy_angle_limit: NonNegativeFloat = 1.0
    """Greatest healthy lean of the torso, rad."""
    reset_noise_scale: NonNegativeFloat = 5e-3
    """Of the initial positions and velocities (uniform)."""
