"""Environments divided into groups that are stepped in turn: the same numbers to the bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from drivetrain_api.tasks import load_task
from drivetrain_api.training import TaskConfig
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.envs.vector_env import VectorEnv

TASKS = (
    "ant",
    "half_cheetah",
    "hopper",
    "humanoid",
    "humanoid_standup",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "pusher",
    "reacher",
    "swimmer",
    "walker2d",
)
STEPS = 25


class Groups:
    """Environments that draw one stream of random numbers, group after group."""

    def __init__(self, task: str, sizes: list[int]) -> None:
        spec = load_task(TaskConfig(name=task))
        self.envs = [make_env(spec, num_envs=size, seed=7 + i) for i, size in enumerate(sizes)]
        self._drawing = self.envs[0]

    def reset(self) -> Tensor:
        return torch.cat([self._with_stream(env).reset().clone() for env in self.envs])

    def step(self, action: Tensor) -> Tensor:
        """(N, 2 o + 3): everything that a step says."""
        found = []
        for env, own in zip(
            self.envs, action.split([env.num_envs for env in self.envs]), strict=True
        ):
            outcome = self._with_stream(env).step(own)
            ends = torch.stack([outcome.reward, outcome.terminated, outcome.truncated], dim=1)
            found.append(torch.cat([outcome.observation, outcome.next_observation, ends], dim=1))
        return torch.cat(found)

    def _with_stream(self, env: VectorEnv) -> VectorEnv:
        if env is not self._drawing:
            env.set_rng_state(self._drawing.rng_state())
        self._drawing = env
        return env


@pytest.mark.parametrize("task", TASKS)
def test_the_division_into_groups_changes_no_bit(task: str) -> None:
    torch.set_num_threads(1)
    whole = Groups(task, [13])
    divided = [Groups(task, sizes) for sizes in ([7, 6], [5, 4, 4], [1, 4, 8])]
    first = whole.reset()
    for groups in divided:
        assert torch.equal(groups.reset(), first)
    generator = torch.Generator().manual_seed(0)
    dim = whole.envs[0].action_dim
    for _ in range(STEPS):
        action = torch.rand(13, dim, generator=generator) * 2 - 1
        expected = whole.step(action)
        for groups in divided:
            assert torch.equal(groups.step(action), expected)
