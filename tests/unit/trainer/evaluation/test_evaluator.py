from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain_api.tasks import load_task
from drivetrain_api.training import TaskConfig
from drivetrain_trainer.evaluation.evaluator import (
    MAX_REPEATS,
    EvaluationError,
    EvaluationResult,
    Evaluator,
)
from drivetrain_trainer.runtime.faults import StopRequestedError

Script = Callable[..., Any]


class Constant(nn.Module):
    def __init__(self, value: float = 1.0) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value))

    def forward(self, observation: Tensor) -> Tensor:
        return self.value.expand(observation.shape[0], 1)


class Echo(nn.Module):
    """The step that the observation tells."""

    def forward(self, observation: Tensor) -> Tensor:
        return observation[:, 1:]


def test_short_episodes_are_not_favoured(script: Script) -> None:
    task = script([[2], [10], [5]])
    result = Evaluator(task.spec, episodes=3, seed=0).evaluate(Constant())
    assert result.lengths == (2, 10, 5)
    assert result.returns == (2.0, 10.0, 5.0)
    assert result.mean == pytest.approx(17 / 3)
    assert result.mean_length == pytest.approx(17 / 3)


def test_each_environment_counts_its_own_first_episodes(script: Script) -> None:
    task = script([[3, 7, 50], [4, 9, 50]])
    result = Evaluator(task.spec, episodes=130, seed=0).evaluate(Constant())
    (env,) = task.made
    assert env.num_envs == 64
    assert len(result.returns) == 130
    assert result.lengths[:6] == (3, 7, 50, 4, 9, 50)
    assert result.lengths[6:10] == (3, 7, 4, 9)


def test_an_evaluation_that_is_interrupted_ends_at_once_and_closes_its_environments(
    script: Script,
) -> None:
    task = script([[50]])
    policy = Constant()
    policy.train()
    with pytest.raises(StopRequestedError):
        Evaluator(task.spec, episodes=1, seed=0).evaluate(policy, interrupted=lambda: True)
    assert policy.training
    (env,) = task.made
    assert env.closed == 1


def test_the_policy_sees_raw_observations_and_its_actions_are_applied(script: Script) -> None:
    task = script([[4]])
    result = Evaluator(task.spec, episodes=1, seed=0).evaluate(Echo())
    assert result.returns == (0.0 + 1.0 + 2.0 + 3.0,)


def test_a_diverged_episode_is_repeated_and_never_counted(script: Script) -> None:
    task = script([[-3, 5], [4]])
    result = Evaluator(task.spec, episodes=2, seed=0).evaluate(Constant())
    assert result.lengths == (5, 4)
    assert result.returns == (5.0, 4.0)
    assert result.repeated == 1


def test_a_world_that_keeps_diverging_ends_the_evaluation_by_name(script: Script) -> None:
    task = script([[4], [-3]])
    with pytest.raises(EvaluationError, match=r"scripted: environment 1 diverged 4 times") as error:
        Evaluator(task.spec, episodes=2, seed=0).evaluate(Constant())
    assert f"BADQACC: {MAX_REPEATS + 1}" in str(error.value)
    assert task.made[0].closed == 1


def test_an_episode_that_does_not_end_is_refused(script: Script) -> None:
    task = script([[50]], limit=10)
    with pytest.raises(EvaluationError, match="11 steps and has not ended; it declares at most 10"):
        Evaluator(task.spec, episodes=1, seed=0).evaluate(Constant())


class Wrong(nn.Module):
    def __init__(self, action: Tensor) -> None:
        super().__init__()
        self.action = action

    def forward(self, _observation: Tensor) -> Tensor:
        return self.action


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (torch.zeros(1, 3), r"shape \(1, 3\), not \(1, 1\)"),
        (torch.full((1, 1), math.nan), "not finite"),
        (torch.full((1, 1), math.inf), "not finite"),
    ],
)
def test_actions_that_cannot_be_applied_are_refused(
    script: Script, action: Tensor, message: str
) -> None:
    task = script([[5]])
    with pytest.raises(EvaluationError, match=message):
        Evaluator(task.spec, episodes=1, seed=0).evaluate(Wrong(action))
    assert task.made[0].closed == 1


def test_an_evaluation_takes_an_episode(script: Script) -> None:
    with pytest.raises(ValueError, match="episodes is 0"):
        Evaluator(script([[1]]).spec, episodes=0, seed=0)


@pytest.mark.parametrize("training", [True, False])
def test_training_does_not_notice_an_evaluation(script: Script, training: bool) -> None:
    modes = []

    class Watching(Constant):
        def forward(self, observation: Tensor) -> Tensor:
            modes.append((self.training, torch.is_grad_enabled()))
            return super().forward(observation)

    policy = Watching().train(training)
    state = torch.get_rng_state()
    Evaluator(script([[3]]).spec, episodes=4, seed=0).evaluate(policy)
    assert set(modes) == {(False, False)}
    assert policy.training is training
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
    assert policy.value.grad is None


def test_every_evaluation_meets_the_same_episodes_in_environments_of_its_own() -> None:
    task = load_task(TaskConfig(name="inverted_double_pendulum"))
    torch.manual_seed(1)
    policy = nn.Sequential(nn.Linear(task.observation_dim, task.action_dim), nn.Tanh())
    evaluator = Evaluator(task, episodes=5, seed=7)
    first, second = evaluator.evaluate(policy), evaluator.evaluate(policy)
    assert first.returns == second.returns
    assert len(set(first.returns)) == 5
    threaded = Evaluator(task, episodes=5, seed=7, num_threads=2).evaluate(policy)
    assert threaded.returns == first.returns
    other = Evaluator(task, episodes=5, seed=8).evaluate(policy)
    assert other.returns != first.returns


def test_task_parameters_reach_the_environments() -> None:
    task = load_task(TaskConfig(name="reacher"))
    policy = nn.Sequential(nn.Linear(task.observation_dim, task.action_dim), nn.Tanh())
    result = Evaluator(task, episodes=2, seed=0, overrides={"episode_length": 12}).evaluate(policy)
    assert result.lengths == (12, 12)


def test_the_deviation_is_that_of_a_sample() -> None:
    assert EvaluationResult((1.0, 3.0), (1, 1), 0.0).sd == pytest.approx(math.sqrt(2))
    assert EvaluationResult((1.0,), (1,), 0.0).sd == 0.0
