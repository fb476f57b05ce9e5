"""The worked example of a task of one's own: named by a manifest, made, and solvable."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import yaml

from drivetrain_api.compose import compose, parse_run
from drivetrain_api.errors import SpecError
from drivetrain_api.tasks import UnknownTaskError, load_task
from drivetrain_api.training import TaskConfig
from drivetrain_trainer.envs.factory import make_env

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_api.trainingrun import TrainingRunSpec
    from drivetrain_trainer.envs.vector_env import VectorEnv

EXAMPLE = Path(__file__).parents[4] / "examples" / "custom-task"


@pytest.fixture(autouse=True)
def example_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``PYTHONPATH=examples/custom-task`` does."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in [name for name in sys.modules if name.partition(".")[0] == "point_reach"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def spec() -> TrainingRunSpec:
    manifest = yaml.safe_load((EXAMPLE / "point-reach-sac.yaml").read_text(encoding="utf-8"))
    return parse_run(manifest).spec


def make(spec: TrainingRunSpec, num_envs: int) -> VectorEnv:
    return make_env(load_task(spec.task), num_envs=num_envs, seed=0, overrides=spec.task.overrides)


def mean_return(env: VectorEnv, act: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """Of the first episode of each env, at most its length."""
    observation = env.reset()
    total = torch.zeros(env.num_envs)
    alive = torch.ones(env.num_envs)
    for _ in range(env.episode_length):
        outcome = env.step(act(observation))
        total += alive * outcome.reward
        alive *= ~(outcome.terminated | outcome.truncated)
        observation = outcome.observation
    assert not alive.any()
    return float(total.mean())


def test_the_manifest_composes_with_the_tasks_own_preset(spec: TrainingRunSpec) -> None:
    composed = compose(spec, load_task(spec.task))
    assert composed.algo.num_envs == 4
    assert composed.training.total_env_steps == 10_000


def test_the_task_is_solved_by_steering_and_not_by_chance(spec: TrainingRunSpec) -> None:
    env = make(spec, num_envs=64)
    generator = torch.Generator().manual_seed(0)

    def steer(observation: torch.Tensor) -> torch.Tensor:
        velocity, to_target = observation[:, 2:4], observation[:, 4:6]
        return (4 * to_target - 3 * velocity).clamp(-1, 1)

    def chance(observation: torch.Tensor) -> torch.Tensor:
        return torch.rand(len(observation), 2, generator=generator) * 2 - 1

    steered, random = mean_return(env, steer), mean_return(env, chance)
    assert random < 0 < steered
    env.close()


def test_the_manifests_override_moves_the_targets(spec: TrainingRunSpec) -> None:
    env = make(spec, num_envs=500)
    observation = env.reset()
    target = (observation[:, :2] + observation[:, 4:6]).abs()
    assert 0.58 < target.max() <= 0.6
    env.close()


def test_an_override_that_the_example_lacks_is_refused(spec: TrainingRunSpec) -> None:
    with pytest.raises(
        SpecError, match=r"task\.overrides\.target_rnage.*did you mean target_range"
    ):
        load_task(spec.task).resolve_overrides({"target_rnage": 1.0})


@pytest.mark.parametrize(
    ("entry_point", "message"),
    [
        ("point_reach:nope", "cannot load task 'point_reach:nope'"),
        ("point_rech:task", "No module named 'point_rech'"),
        ("point_reach:PointReachParameters", "not a TaskSpec"),
    ],
)
def test_an_entry_point_that_gives_no_task_is_named(entry_point: str, message: str) -> None:
    with pytest.raises(UnknownTaskError, match=message):
        load_task(TaskConfig(name="point_reach", entry_point=entry_point))
