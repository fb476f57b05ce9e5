"""skrl's SAC on HalfCheetah: updates a second, end to end, one update for each env step."""

import json
import logging
import sys
import time
from typing import Any

import gymnasium
import skrl
import torch
from skrl.agents.torch.sac import SAC, SAC_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from torch import nn

skrl.logger.setLevel(logging.ERROR)
torch.set_num_threads(1)
steps = int(sys.argv[1])
warm_up = 300
device = torch.device("cpu")
env = wrap_env(gymnasium.make("HalfCheetah-v5"))


def mlp(inputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())


class Policy(GaussianMixin, Model):
    def __init__(self) -> None:
        Model.__init__(
            self,
            observation_space=env.observation_space,
            action_space=env.action_space,
            device=device,
        )
        GaussianMixin.__init__(
            self, clip_actions=True, clip_log_std=True, min_log_std=-5, max_log_std=2
        )
        self.body = mlp(self.num_observations)
        self.mean = nn.Linear(256, self.num_actions)
        self.log_std = nn.Linear(256, self.num_actions)

    def compute(self, inputs: Any, role: str = "") -> Any:  # noqa: ARG002 - skrl's signature
        hidden = self.body(inputs["observations"])
        return torch.tanh(self.mean(hidden)), {"log_std": self.log_std(hidden)}


class Critic(DeterministicMixin, Model):
    def __init__(self) -> None:
        Model.__init__(
            self,
            observation_space=env.observation_space,
            action_space=env.action_space,
            device=device,
        )
        DeterministicMixin.__init__(self)
        self.body = mlp(self.num_observations + self.num_actions)
        self.value = nn.Linear(256, 1)

    def compute(self, inputs: Any, role: str = "") -> Any:  # noqa: ARG002 - skrl's signature
        joined = torch.cat([inputs["observations"], inputs["taken_actions"]], dim=1)
        return self.value(self.body(joined)), {}


models = {"policy": Policy()}
models |= {
    name: Critic() for name in ("critic_1", "critic_2", "target_critic_1", "target_critic_2")
}
agent = SAC(
    models=models,
    memory=RandomMemory(memory_size=100_000, num_envs=1, device=device),
    observation_space=env.observation_space,
    action_space=env.action_space,
    device=device,
    cfg=SAC_CFG(batch_size=256, gradient_steps=1, learning_starts=256, random_timesteps=256),
)
agent.init(trainer_cfg=None)
agent.enable_training_mode(True)
observations, _ = env.reset()
began = 0.0
total = 256 + warm_up + steps
for step in range(total):
    if step == 256 + warm_up:
        began = time.perf_counter()
    agent.pre_interaction(timestep=step, timesteps=total)
    with torch.no_grad():
        actions, _ = agent.act(observations, None, timestep=step, timesteps=total)
        following, rewards, terminated, truncated, infos = env.step(actions)
        agent.record_transition(
            observations=observations,
            states=None,
            actions=actions,
            rewards=rewards,
            next_observations=following,
            next_states=None,
            terminated=terminated,
            truncated=truncated,
            infos=infos,
            timestep=step,
            timesteps=total,
        )
    agent.post_interaction(timestep=step, timesteps=total)
    observations = env.reset()[0] if (terminated | truncated).any() else following
print(json.dumps({"updates_per_second": steps / (time.perf_counter() - began)}))
