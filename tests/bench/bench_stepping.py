"""Stepping through the manager environment against raw `mujoco.batch.Batch`."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch
from mujoco.batch import Batch

from drivetrain_api.tasks import load_task
from drivetrain_api.training import TaskConfig
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.physics.mujoco_backend import MujocoPhysics

TARGETS = {"half_cheetah": 0.85, "ant": 0.95, "humanoid": 0.95}
"""Least share of the raw rate that each task is held to."""

_WARM_UP = 20


def measure(
    task: str = "half_cheetah", *, num_envs: int = 256, num_threads: int = 1, steps: int = 200
) -> dict[str, Any]:
    """Env-steps a second of both, in turn from the same states under the same actions.

    Args:
        task: Whose environments; a key of `TARGETS`.
        num_envs: Worlds.
        num_threads: Of both.
        steps: Pairs that the medians are taken over, after a few to warm up.
    """
    torch.manual_seed(0)
    env = make_env(
        load_task(TaskConfig(name=task)), num_envs=num_envs, seed=0, num_threads=num_threads
    )
    assert isinstance(env, ManagerEnv)
    env.reset()
    physics = env._physics
    assert isinstance(physics, MujocoPhysics)
    raw = Batch(physics.render_state(0).model, num_envs, num_threads)
    ours: list[float] = []
    reference: list[float] = []
    for step in range(_WARM_UP + steps):
        action = torch.rand(num_envs, env.action_dim) * 2 - 1
        for field in ("qpos", "qvel", "qacc_warmstart"):
            raw.bind(field)[:] = physics.world_batch.state(field).numpy()
        # each goes first in turn, so that neither always finds the caches warm
        for mine in (True, False) if step % 2 else (False, True):
            seconds = _time_ours(env, action) if mine else _time_raw(raw, env, action)
            if step >= _WARM_UP:
                (ours if mine else reference).append(seconds)
    env.close()
    ratios = [theirs / mine for mine, theirs in zip(ours, reference, strict=True)]
    tenths = statistics.quantiles(ratios, n=10)
    return {
        "name": f"stepping_{task}",
        "metric": f"env-steps/s, N = {num_envs}, {num_threads} threads",
        "ours": num_envs / statistics.median(ours),
        "reference": num_envs / statistics.median(reference),
        "reference_name": "raw mujoco.batch.Batch",
        "ratio": statistics.median(ratios),
        "better": "higher",
        "target": TARGETS[task],
        "runs": steps,
        "spread": [tenths[0], tenths[-1]],
    }


def _time_ours(env: ManagerEnv, action: torch.Tensor) -> float:
    began = time.perf_counter()
    env.step(action)
    return time.perf_counter() - began


def _time_raw(raw: Batch, env: ManagerEnv, action: torch.Tensor) -> float:
    control = (action * (env.action_high - env.action_low) / 2).numpy()
    ctrl, substeps = raw.bind("ctrl"), env._substeps
    began = time.perf_counter()
    ctrl[:] = control
    raw.step(nstep=substeps)
    return time.perf_counter() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=sorted(TARGETS), default="half_cheetah")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(measure(options.task, num_threads=options.threads), indent=2))
