"""What a task declares of itself, as plain data: cheap to load, no torch.

A task is registered as an entry point of group ``drivetrain.tasks`` (or named by
``task.entryPoint``) whose object is a `TaskSpec`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.training import Simulator, TaskConfig

TASK_GROUP = "drivetrain.tasks"


@dataclass(frozen=True)
class TaskSpec:
    """A task: its sizes, its presets, and where its environment is made.

    `presets` maps an algorithm to a partial spec (snake_case nested dict with the keys
    ``algo``, ``training``, ``evaluator``, ``checkpoint``) that is put over the
    algorithm's defaults and under the manifest.
    """

    name: str
    factory: str
    """``module:function`` returning a vector environment; imported in the trainer alone."""
    observation_dim: int
    action_dim: int
    episode_length: int
    description: str = ""
    simulators: frozenset[Simulator] = frozenset({Simulator.MUJOCO})
    presets: Mapping[AlgoName, Mapping[str, Any]] = field(
        default_factory=lambda: MappingProxyType({})
    )


class UnknownTaskError(LookupError):
    """No task of that name is registered, or the entry point does not give one."""


def registered_tasks() -> tuple[str, ...]:
    """Names of the registered tasks, sorted; imports none of them."""
    return tuple(sorted(point.name for point in entry_points(group=TASK_GROUP)))


def load_task(config: TaskConfig) -> TaskSpec:
    """The `TaskSpec` that a manifest names.

    Raises:
        UnknownTaskError: with near matches, or with what failed on import.
    """
    if config.entry_point is not None:
        return _import(config.entry_point)
    for point in entry_points(group=TASK_GROUP):
        if point.name == config.name:
            return _import(point.value)
    names = registered_tasks()
    near = difflib.get_close_matches(config.name, names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"registered: {', '.join(names)}"
    raise UnknownTaskError(f"unknown task {config.name!r}: {hint}")


def _import(target: str) -> TaskSpec:
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UnknownTaskError(f"cannot load task {target!r}: {error}") from error
    if not isinstance(found, TaskSpec):
        raise UnknownTaskError(f"{target!r} is a {type(found).__name__}, not a TaskSpec")
    return found
