"""An environment whose every number can be said in advance, with faults on request."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from drivetrain_api.metrics import Family, Owner, Unit
from drivetrain_trainer.envs.vector_env import ActiveTerm, ManagerKind, StepOutcome, StepTimings

OBSERVATION_DIM = 3
ACTION_DIM = 2
EPISODE_LENGTH = 5
FAMILIES = (
    Family("gait/", Unit.NONE, Owner.ENVIRONMENT),
    Family("falls/", Unit.EPISODES, Owner.ENVIRONMENT, counted=True),
)


@dataclass(frozen=True)
class ScriptedFactory:
    """Picklable; faults happen in the step of that number, counted from 0."""

    raise_at: int | None = None
    kill_at: int | None = None
    hang_at: int | None = None
    invalid_at: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    terminate_at: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    fail_to_make: bool = False
    observation_dim: int = OBSERVATION_DIM
    make_seconds: float = 0.0
    own_log: Mapping[str, bool] = field(default_factory=dict)
    """Tag -> whether it is declared: logs the number of its step in each."""

    def __call__(self, *, num_envs: int, seed: int) -> ScriptedEnv:
        if self.fail_to_make:
            raise ValueError("no such robot")
        time.sleep(self.make_seconds)
        return ScriptedEnv(self, num_envs, seed)


class ScriptedEnv:
    """Observation: (env, steps of its episode, a random number); reward: steps + 0.5 env.

    Its buffers are overwritten by each step, with NaN first, as their contract allows.
    """

    action_dim = ACTION_DIM
    episode_length = EPISODE_LENGTH
    step_seconds = 0.05
    action_low = torch.full((ACTION_DIM,), -1.0)
    action_high = torch.full((ACTION_DIM,), 1.0)
    terms = (ActiveTerm(ManagerKind.REWARD, "alive", weight=1.0),)
    log_tags: tuple[str, ...] = ("reward/alive", "Episode_Termination/fell")

    def __init__(self, script: ScriptedFactory, num_envs: int, seed: int) -> None:
        self.observation_dim = script.observation_dim
        self.num_envs = num_envs
        self.log: dict[str, Tensor] = {}
        self.timings = StepTimings(0.1, 0.2, 0.3, 0.4, 0.5)
        self.instability = {"nonfinite": 0}
        self.closed = False
        declared = tuple(tag for tag, known in script.own_log.items() if known)
        self.log_tags = (*ScriptedEnv.log_tags, *declared)
        self.log_families = FAMILIES if script.own_log else ()
        self._script = script
        self._generator = torch.Generator().manual_seed(seed)
        self._steps = 0
        self._age = torch.zeros(num_envs)
        self._observation = torch.full((num_envs, self.observation_dim), torch.nan)
        self._next = torch.full((num_envs, self.observation_dim), torch.nan)

    def reset(self) -> Tensor:
        self._age.zero_()
        self._observe(self._observation)
        return self._observation

    def step(self, action: Tensor) -> StepOutcome:
        number, script = self._steps, self._script
        self._steps += 1
        if number == script.raise_at:
            raise FloatingPointError(f"diverged for good at step {number}")
        if number == script.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == script.hang_at:
            time.sleep(3600)
        assert action.isfinite().all()
        self._observation.fill_(torch.nan)
        self._next.fill_(torch.nan)
        self._age += 1
        reward = self._age + 0.5 * torch.arange(self.num_envs) + 0.0 * action.sum()
        invalid = self._marked(script.invalid_at.get(number, ()))
        terminated = self._marked(script.terminate_at.get(number, ())) & ~invalid
        truncated = (self._age >= EPISODE_LENGTH) & ~terminated & ~invalid
        self._observe(self._next)
        over = terminated | truncated | invalid
        self._age.masked_fill_(over, 0.0)
        self._observation.copy_(self._next)
        self._observation[over, 1] = 0.0
        self._next[invalid] = self._observation[invalid]
        self.instability["nonfinite"] += int(invalid.sum())
        self.log = {"reward/alive": reward.mean()}
        if over.any():
            self.log["Episode_Termination/fell"] = terminated.sum()
        self.log |= {tag: torch.tensor(float(number)) for tag in script.own_log}
        return StepOutcome(self._observation, self._next, reward, terminated, truncated, invalid)

    def rng_state(self) -> Tensor:
        return self._generator.get_state()

    def set_rng_state(self, state: Tensor) -> None:
        self._generator.set_state(state)

    def render_state(self) -> None:
        return None

    def close(self) -> None:
        self.closed = True

    def _marked(self, environments: tuple[int, ...]) -> Tensor:
        marks = torch.zeros(self.num_envs, dtype=torch.bool)
        marks[list(environments)] = True
        return marks

    def _observe(self, into: Tensor) -> None:
        into[:, 0] = torch.arange(self.num_envs)
        into[:, 1] = self._age
        into[:, 2:] = torch.rand(self.num_envs, 1, generator=self._generator)
