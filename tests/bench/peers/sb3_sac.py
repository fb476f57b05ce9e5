"""SB3's SAC on HalfCheetah: updates a second, end to end, one update for each env step."""

import json
import sys
import time

import gymnasium
import torch
from stable_baselines3 import SAC

torch.set_num_threads(1)
steps = int(sys.argv[1])
warm_up = 300
model = SAC(
    "MlpPolicy",
    gymnasium.make("HalfCheetah-v5"),
    batch_size=256,
    learning_starts=256,
    policy_kwargs={"net_arch": [256, 256]},
    device="cpu",
    seed=0,
)
model.learn(256 + warm_up)
began, updates = time.perf_counter(), model._n_updates
model.learn(steps, reset_num_timesteps=False)
seconds = time.perf_counter() - began
print(json.dumps({"updates_per_second": (model._n_updates - updates) / seconds}))
