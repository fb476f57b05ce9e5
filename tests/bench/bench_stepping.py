"""Stepping through the manager environment against raw `mujoco.batch.Batch`."""

from __future__ import annotations

import statistics
import time

import torch
from mujoco.batch import Batch
from tests.bench.result import Result

from drivetrain_api.tasks import load_task
from drivetrain_api.training import TaskConfig
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.physics.mujoco_backend import MujocoPhysics

TARGETS = {"half_cheetah": 0.85, "ant": 0.95, "humanoid": 0.95}
"""Least share of the raw rate that each task is held to."""

_WARM_UP = 20


def measure() -> list[Result]:
    """Each task of `TARGETS`."""
    torch.set_num_threads(1)
    return [compare(task) for task in TARGETS]


def compare(task: str, *, num_envs: int = 256, num_threads: int = 1, steps: int = 200) -> Result:
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
    return Result(
        name=f"stepping_{task}",
        metric=f"env-steps/s, N = {num_envs}, {num_threads} threads",
        ours=num_envs / statistics.median(ours),
        reference=num_envs / statistics.median(reference),
        reference_name="raw mujoco.batch.Batch",
        ratio=statistics.median(ratios),
        better="higher",
        target=TARGETS[task],
        runs=steps,
        spread=(num_envs / max(ours), num_envs / min(ours)),
    )


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
