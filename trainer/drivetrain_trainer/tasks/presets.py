"""Presets at CPU size: few environments, one update for each of their steps.

The algorithms' own defaults are for thousands of environments on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.training import Simulator

Preset = Mapping[str, Mapping[str, Any]]

SIMULATOR_PRESETS: Final[Mapping[Simulator, Preset]] = MappingProxyType(
    {
        Simulator.MJWARP: MappingProxyType(
            {"training": MappingProxyType({"collector_metrics_interval": 100})}
        )
    }
)
"""With thousands of worlds on a GPU a report after each tick says little and takes its time."""

_CPU_SAC: Mapping[str, Any] = MappingProxyType(
    {
        "num_envs": 4,
        "batch_size": 256,
        "updates_per_step": 4,
        "policy_frequency": 1,
        "learning_starts": 250,
        "replay_rows": 1_000_000,
        "gamma": 0.99,
        "tau": 0.005,
        "actor_learning_rate": 3e-4,
        "critic_learning_rate": 3e-4,
        "alpha_learning_rate": 3e-4,
        "adam_betas": (0.9, 0.999),
        "weight_decay": 0.0,
        "alpha_init": 1.0,
        "actor_hidden": (256, 256),
        "critic_hidden": (256, 256),
        "activation": "relu",
        "layer_norm": False,
        "critic": "twin_q",  # returns span orders of magnitude: no one support fits them
        "observation_normalization": False,
    }
)


def sac_preset(
    *, total_env_steps: int, evaluator: Mapping[str, Any] | None = None, **algo: object
) -> Mapping[AlgoName, Preset]:
    """A task's SAC preset: the CPU-size settings with the task's own put over them.

    Args:
        total_env_steps: Length of a run, over all ranks.
        evaluator: `spec.evaluator` settings.
        algo: `spec.algo` settings.
    """
    preset: dict[str, Mapping[str, Any]] = {
        "algo": MappingProxyType({**_CPU_SAC, **algo}),
        "training": MappingProxyType({"total_env_steps": total_env_steps}),
    }
    if evaluator is not None:
        preset["evaluator"] = MappingProxyType(dict(evaluator))
    return MappingProxyType({AlgoName.SAC: MappingProxyType(preset)})
