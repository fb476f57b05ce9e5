"""From a task's declaration to its environments."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import cast

from drivetrain_api.tasks import TaskParameters, TaskSpec
from drivetrain_api.training import Simulator
from drivetrain_trainer.envs.errors import EnvError
from drivetrain_trainer.envs.vector_env import EnvRequest, VectorEnv

EnvFactory = Callable[[EnvRequest, TaskParameters], VectorEnv]
"""What `TaskSpec.factory` names."""


def make_env(
    task: TaskSpec,
    *,
    num_envs: int,
    seed: int,
    num_threads: int = 1,
    sim: Simulator = Simulator.MUJOCO,
    device: str = "cpu",
    overrides: Mapping[str, object] | None = None,
) -> VectorEnv:
    """The environments of a task, checked against what the task declares.

    Args:
        task: The declaration, from `drivetrain_api.tasks.load_task`.
        num_envs: Environments stepped together.
        seed: Of their generator, an exact int of 0 to 2**32 - 1.
        num_threads: With which physics is stepped.
        sim: Physics backend.
        device: Torch device of a native backend's worlds.
        overrides: Task parameters by name, the manifest's ``task.overrides``.

    Raises:
        SpecError: an override is unknown or refused; the path is ``task.overrides.<key>``.
        EnvError: the factory cannot be loaded, the task does not run on `sim`, or its
            environments are not of the sizes that it declares.
    """
    parameters = task.resolve_overrides(overrides or {})
    if sim not in task.simulators:
        offered = task.runs_on(sim)
        raise EnvError(f"task {task.name!r} runs on {offered}, not on {sim.value!r}")
    env = _factory(task)(EnvRequest(num_envs, seed, num_threads, sim, device), parameters)
    declared = (num_envs, task.observation_dim, task.action_dim)
    made = (env.num_envs, env.observation_dim, env.action_dim)
    if made != declared:
        env.close()
        raise EnvError(
            f"task {task.name!r} declares (envs, observation columns, action columns) {declared},"
            f" its factory made {made}"
        )
    return env


def _factory(task: TaskSpec) -> EnvFactory:
    module, _, attribute = task.factory.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise EnvError(
            f"task {task.name!r} names the factory {task.factory!r}, which does not load: {error}"
        ) from error
    if not callable(found):
        raise EnvError(f"task {task.name!r} names the factory {task.factory!r}, not a function")
    return cast("EnvFactory", found)
