"""Deterministic evaluation over a fixed number of episodes."""

from __future__ import annotations

import math
import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from drivetrain_api.training import Simulator
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.runtime.faults import StopRequestedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor, nn

    from drivetrain_api.tasks import TaskSpec
    from drivetrain_trainer.envs.vector_env import StepOutcome, VectorEnv

MAX_ENVS = 64
"""Environments that are stepped together."""
MAX_REPEATS = 3
"""Times that an episode whose world diverged is begun anew."""


class EvaluationError(RuntimeError):
    """A policy that cannot be evaluated."""


@dataclass(frozen=True)
class EvaluationResult:
    """Returns and lengths of all episodes, in the order of their environments."""

    returns: tuple[float, ...]
    """Undiscounted return of each episode."""
    lengths: tuple[int, ...]
    """Steps of each episode."""
    seconds: float
    """Wall time, making the environments included."""
    repeated: int = 0
    """Episodes begun anew because their world diverged."""

    @property
    def mean(self) -> float:
        """Mean return."""
        return statistics.fmean(self.returns)

    @property
    def sd(self) -> float:
        """Sample standard deviation of the returns; 0 for a single episode."""
        return statistics.stdev(self.returns) if len(self.returns) > 1 else 0.0

    @property
    def mean_length(self) -> float:
        """Mean episode length in steps."""
        return statistics.fmean(self.lengths)


class Evaluator:
    """Evaluates policies on one task, each time on the same episodes.

    Every evaluation makes environments of its own with the same seed, so that two policies
    meet the same initial states, and neither training's environments nor any global
    generator are touched. Each environment counts the first episodes that it was given
    beforehand: counting whichever episode ends first would favour short ones.
    """

    def __init__(
        self,
        task: TaskSpec,
        *,
        episodes: int,
        seed: int,
        sim: Simulator = Simulator.MUJOCO,
        overrides: Mapping[str, object] | None = None,
        num_threads: int = 1,
    ) -> None:
        if episodes < 1:
            raise ValueError(f"episodes is {episodes}; an evaluation takes at least 1")
        self._task = task
        self._episodes = episodes
        self._seed = seed
        self._sim = sim
        self._overrides = dict(overrides or {})
        self._num_threads = num_threads

    def evaluate(
        self, policy: nn.Module, *, interrupted: Callable[[], bool] = lambda: False
    ) -> EvaluationResult:
        """Run all episodes with the policy in evaluation mode; its mode is restored.

        Args:
            policy: (N, o) float32 raw observations -> (N, a) actions in [-1, 1], on the
                device of its parameters.
            interrupted: Asked at each step; ends the evaluation where it is true.

        Raises:
            StopRequestedError: it was interrupted.
            EvaluationError: if its actions have a wrong shape or are not finite, or if the
                task does not end its episodes or keeps diverging.
        """
        started = time.perf_counter()
        env = make_env(
            self._task,
            num_envs=min(self._episodes, MAX_ENVS),
            seed=self._seed,
            num_threads=self._num_threads,
            sim=self._sim,
            overrides=self._overrides,
        )
        try:
            tally = _Tally(self._task.name, env, self._episodes)
            with evaluating(policy):
                _run(env, policy, tally, interrupted)
        finally:
            env.close()
        return EvaluationResult(
            returns=tuple(value for row in tally.returns for value in row),
            lengths=tuple(value for row in tally.lengths for value in row),
            seconds=time.perf_counter() - started,
            repeated=sum(tally.repeated),
        )


@contextmanager
def evaluating(policy: nn.Module) -> Iterator[None]:
    """Evaluation mode; the former mode comes back."""
    was_training = policy.training
    policy.eval()
    try:
        yield
    finally:
        policy.train(was_training)


@torch.no_grad()
def act(policy: nn.Module, observation: Tensor, action_dim: int) -> Tensor:
    """The policy's actions on the CPU, checked.

    Raises:
        EvaluationError: if they have a wrong shape or are not finite.
    """
    device = next((p.device for p in policy.parameters()), observation.device)
    action: Tensor = policy(observation.to(device)).detach().to("cpu", torch.float32)
    wanted = (observation.shape[0], action_dim)
    if tuple(action.shape) != wanted:
        raise EvaluationError(
            f"the policy gives actions of shape {tuple(action.shape)}, not {wanted}"
        )
    if not bool(torch.isfinite(action).all()):
        raise EvaluationError("the policy gives actions that are not finite")
    return action


def _run(env: VectorEnv, policy: nn.Module, tally: _Tally, interrupted: Callable[[], bool]) -> None:
    observation = env.reset()
    while not tally.complete:
        if interrupted():
            raise StopRequestedError
        outcome = env.step(act(policy, observation, env.action_dim))
        tally.add(outcome)
        observation = outcome.observation


class _Tally:
    """Counts each environment's own episodes until all are in."""

    def __init__(self, task: str, env: VectorEnv, episodes: int) -> None:
        share, rest = divmod(episodes, env.num_envs)
        self._task = task
        self._env = env
        self._quota = [share + (index < rest) for index in range(env.num_envs)]
        self._missing = episodes
        self._return = torch.zeros(env.num_envs, dtype=torch.float64)
        self._length = torch.zeros(env.num_envs, dtype=torch.int64)
        self.returns: list[list[float]] = [[] for _ in self._quota]
        self.lengths: list[list[int]] = [[] for _ in self._quota]
        self.repeated = [0] * env.num_envs

    @property
    def complete(self) -> bool:
        """Whether every environment has counted its episodes."""
        return self._missing == 0

    def add(self, outcome: StepOutcome) -> None:
        """Take a step of all environments."""
        self._return += outcome.reward
        self._length += 1
        over = outcome.terminated | outcome.truncated | outcome.invalid
        for index in over.nonzero().flatten().tolist():
            if len(self.returns[index]) < self._quota[index]:
                self._end(index, diverged=bool(outcome.invalid[index]))
            self._return[index] = 0.0
            self._length[index] = 0
        longest = int(self._length.max())
        if longest > self._env.episode_length:
            raise EvaluationError(
                f"task {self._task}: an episode has {longest} steps and has not ended; "
                f"it declares at most {self._env.episode_length}"
            )

    def _end(self, index: int, *, diverged: bool) -> None:
        if diverged:
            self.repeated[index] += 1
            if self.repeated[index] > MAX_REPEATS * self._quota[index]:
                raise EvaluationError(
                    f"task {self._task}: environment {index} diverged "
                    f"{self.repeated[index]} times ({self._reasons()})"
                )
            return
        total = float(self._return[index])
        if not math.isfinite(total):
            raise EvaluationError(f"task {self._task}: the return of an episode is {total}")
        self.returns[index].append(total)
        self.lengths[index].append(int(self._length[index]))
        self._missing -= 1

    def _reasons(self) -> str:
        found = ", ".join(
            f"{name}: {count}" for name, count in self._env.instability.items() if count
        )
        return found or "no reason reported"
