"""A task of one's own: a point mass that shall reach a target in the plane.

This module only declares the task. The command line imports it too, so what needs torch and
MuJoCo stands in `point_reach.env`, which the trainer alone imports.
"""

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.base import NonNegativeFloat, PositiveFloat, PositiveInt
from drivetrain_api.tasks import TaskParameters, TaskSpec


class PointReachParameters(TaskParameters):
    """What a manifest may set under `spec.task.overrides`."""

    episode_length: PositiveInt = 100
    """Steps after which an episode is truncated."""
    target_range: PositiveFloat = 0.8
    """Targets lie in a square of this half width, m."""
    control_cost_weight: NonNegativeFloat = 0.05
    """Factor of the squared action."""


task = TaskSpec(
    name="point_reach",
    factory="point_reach.env:make",
    observation_dim=6,
    action_dim=2,
    episode_length=100,
    description="A point mass reaches a target in the plane.",
    parameters=PointReachParameters,
    presets={
        AlgoName.SAC: {
            "algo": {
                "num_envs": 4,
                "batch_size": 256,
                "updates_per_step": 4,
                "policy_frequency": 1,
                "learning_starts": 100,
                "replay_rows": 100_000,
                "gamma": 0.95,
                "tau": 0.005,
                "actor_learning_rate": 1e-3,
                "critic_learning_rate": 1e-3,
                "alpha_learning_rate": 1e-3,
                "adam_betas": (0.9, 0.999),
                "weight_decay": 0.0,
                "alpha_init": 0.2,
                "actor_hidden": (64, 64),
                "critic_hidden": (64, 64),
                "activation": "relu",
                "layer_norm": False,
                "critic": "twin_q",
                "observation_normalization": False,
            },
            "training": {"total_env_steps": 10_000},
            "evaluator": {"interval": 2000, "episodes": 20},
        }
    },
)
