from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from typing import Any

import pytest
import torch

from drivetrain_api.algorithms import AlgoName, CriticKind, SacConfig
from drivetrain_api.compose import plain_preset
from drivetrain_api.tasks import TASK_GROUP, TaskSpec, load_task
from drivetrain_api.training import (
    CheckpointConfig,
    EvaluatorConfig,
    Simulator,
    TaskConfig,
    TrainingConfig,
)
from drivetrain_trainer.envs.errors import EnvError
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.tasks.assets import gymnasium_model
from drivetrain_trainer.tasks.catalog import TASKS

EACH = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)

SECTIONS: dict[str, Any] = {
    "algo": SacConfig,
    "training": TrainingConfig,
    "evaluator": EvaluatorConfig,
    "checkpoint": CheckpointConfig,
}


@EACH
def test_each_task_is_registered_under_its_name(task: TaskSpec) -> None:
    assert load_task(TaskConfig(name=task.name)) is task
    points = [point for point in entry_points(group=TASK_GROUP) if point.name == task.name]
    assert [point.value for point in points] == [f"drivetrain_trainer.tasks.catalog:{task.name}"]


def test_on_mjwarp_the_metrics_interval_alone_differs() -> None:
    for task in TASKS:
        plain = plain_preset(task, AlgoName.SAC)
        special = plain_preset(task, AlgoName.SAC, Simulator.MJWARP)
        assert special["training"] == plain["training"] | {"collector_metrics_interval": 100}
        assert special | {"training": None} == plain | {"training": None}
        assert plain_preset(task, AlgoName.SAC, Simulator.MUJOCO) == plain


@EACH
def test_presets_are_valid_settings_of_cpu_size(task: TaskSpec) -> None:
    preset = task.presets[AlgoName.SAC]
    composed = {section: SECTIONS[section](**keys) for section, keys in preset.items()}
    algo: SacConfig = composed["algo"]
    assert composed["training"].total_env_steps is not None
    assert algo.updates_per_step == algo.num_envs <= 8
    row_bytes = 4 * (2 * task.observation_dim + task.action_dim + 3)
    assert algo.replay_rows * row_bytes < 400 * 2**20
    if algo.critic is CriticKind.C51:
        assert algo.v_min < algo.v_max


@EACH
def test_defaults_agree_with_the_declaration_and_the_sizes_made(task: TaskSpec) -> None:
    assert task.parameters().model_dump()["episode_length"] == task.episode_length
    env = make_env(task, num_envs=2, seed=0)
    assert env.episode_length == task.episode_length
    assert env.reset().shape == (2, task.observation_dim)
    outcome = env.step(torch.zeros(2, task.action_dim))
    assert torch.isfinite(outcome.observation).all()
    env.close()


SHOWING: dict[str, dict[str, Any]] = {
    "contact_cost_max": {"contact_cost_weight": 1e3},
    "impact_cost_max": {"impact_cost_weight": 1e3},
}
"""What must be set beside a parameter for it to show at all."""


@EACH
def test_every_parameter_changes_the_environment_that_is_made(task: TaskSpec) -> None:
    """A parameter that the factory forgot would be accepted, and do nothing."""
    plain = trace(task, {})
    for name, value in task.parameters().model_dump().items():
        beside = SHOWING.get(name, {})
        without = trace(task, beside) if beside else plain
        changed = {**beside, name: another_value(task, name, value)}
        assert not same(trace(task, changed), without), name


def another_value(task: TaskSpec, name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    match name:
        case "episode_length":
            return value + 1
        case "healthy_z_min":
            return value + 0.7  # above the height at which every body starts
        case "healthy_z_max":
            return task.parameters().model_dump()["healthy_z_min"] + 0.2  # below it
    return value * 0.01


def trace(task: TaskSpec, overrides: dict[str, Any]) -> list[torch.Tensor]:
    """A short episode under full thrust, long enough to fall."""
    env = make_env(task, num_envs=2, seed=0, overrides=overrides)
    rows = [env.reset().clone(), torch.tensor([float(env.episode_length)])]
    generator = torch.Generator().manual_seed(0)
    for _ in range(120):
        action = (torch.rand(2, task.action_dim, generator=generator) * 2 - 1).sign()
        outcome = env.step(action)
        rows += [
            outcome.observation.clone(),
            outcome.reward.clone(),
            outcome.terminated.float(),
        ]
    env.close()
    return rows


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(first, second, strict=True))


def test_declarations_need_neither_torch_nor_a_simulator() -> None:
    script = (
        "import sys, drivetrain_trainer.tasks.catalog\n"
        "heavy = {'torch', 'numpy', 'mujoco', 'gymnasium'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_models_are_found_without_importing_gymnasium() -> None:
    script = (
        "import sys\n"
        "from drivetrain_trainer.tasks.assets import gymnasium_model\n"
        "assert gymnasium_model('ant.xml').is_file()\n"
        "assert 'gymnasium' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(EnvError, match=r"has no model .*unicorn\.xml"):
        gymnasium_model("unicorn.xml")
