"""Make a reference distribution: SB3's SAC at its defaults on a Gymnasium MuJoCo task.

Run in an environment of its own (``pip install stable-baselines3 gymnasium[mujoco]``)::

    python tests/learning/references/sb3_sac.py InvertedDoublePendulum-v5 --steps 15000 \
        --seeds 10 --output tests/learning/references/sb3_inverted_double_pendulum.json

The file is rewritten after each seed, so that an interrupted run keeps what it has; seeds that
are there already are not run again.
"""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import SAC

PACKAGES = ("stable-baselines3", "torch", "gymnasium", "mujoco", "numpy")


def evaluate(model: SAC, task: str, episodes: int, seed: int) -> float:
    """Mean return of the deterministic policy over whole episodes."""
    env = gymnasium.make(task)
    returns = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed + episode)
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    env.close()
    return float(np.mean(returns))


def train(task: str, seed: int, steps: int, every: int, episodes: int) -> dict[str, Any]:
    """One seed's curve of evaluated returns."""
    model = SAC("MlpPolicy", gymnasium.make(task), seed=seed, device="cpu")
    curve = []
    for step in range(every, steps + 1, every):
        model.learn(every, reset_num_timesteps=False)
        curve.append({"env_steps": step, "return": evaluate(model, task, episodes, 10_000 + seed)})
    return {"seed": seed, "curve": curve}


def main() -> None:
    """Run the seeds that the output file lacks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("--steps", type=int, default=15_000)
    parser.add_argument("--every", type=int, default=1_000)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = json.loads(arguments.output.read_text())["runs"] if arguments.output.exists() else []
    done = {run["seed"] for run in runs}
    for seed in (seed for seed in range(arguments.seeds) if seed not in done):
        runs.append(
            train(arguments.task, seed, arguments.steps, arguments.every, arguments.episodes)
        )
        document = {
            "task": arguments.task,
            "algorithm": "stable_baselines3.SAC, default arguments",
            "steps": arguments.steps,
            "episodes_per_evaluation": arguments.episodes,
            "versions": {name: version(name) for name in PACKAGES},
            "machine": {"processor": platform.processor() or platform.machine(), "threads": 1},
            "runs": runs,
        }
        arguments.output.write_text(json.dumps(document, indent=1) + "\n")
        print(f"seed {seed}: {runs[-1]['curve'][-1]}", flush=True)


if __name__ == "__main__":
    main()
