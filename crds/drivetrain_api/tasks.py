"""What a task declares of itself, as plain data: cheap to load, no torch.

A task is registered as an entry point of group ``drivetrain.tasks`` (or named by
``task.entryPoint``) whose object is a `TaskSpec`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.base import ApiModel
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.explain import allowed, show
from drivetrain_api.installed import installed
from drivetrain_api.training import Simulator, TaskConfig

TASK_GROUP = "drivetrain.tasks"


class TaskParameters(ApiModel):
    """What `task.overrides` may set of a task; a task with parameters derives from this.

    Fields are scalars (a number, a flag or a text), each with a default.
    """


@dataclass(frozen=True)
class TaskSpec:
    """A task: its sizes, its presets, and where its environment is made.

    `presets` maps an algorithm to a partial spec (snake_case nested dict with the keys
    ``algo``, ``training``, ``evaluator``, ``checkpoint``) that is put over the
    algorithm's defaults and under the manifest.
    """

    name: str
    factory: str
    """``module:function``, called with an ``EnvRequest`` and the parameters and returning a
    vector environment; imported in the trainer alone."""
    observation_dim: int
    action_dim: int
    episode_length: int
    description: str = ""
    simulators: frozenset[Simulator] = frozenset({Simulator.MUJOCO})
    unsupported: Mapping[Simulator, str] = field(default_factory=lambda: MappingProxyType({}))
    """Simulator -> why the task does not run on it, for the refusal."""
    presets: Mapping[AlgoName, Mapping[str, Any]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    simulator_presets: Mapping[Simulator, Mapping[str, Any]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Simulator -> a partial spec put over the algorithm's preset where a run uses it: what
    differs with thousands of worlds on a GPU, such as ``training.collector_metrics_interval``."""
    parameters: type[TaskParameters] = TaskParameters
    backend: str | None = None
    """``module:attribute`` of the physics backend's class, where the task's environments bring
    a backend of their own instead of the manifest's ``sim``; imported in the trainer alone."""

    def runs_on(self, simulator: Simulator) -> str:
        """Which simulators the task runs on, and why not on `simulator` where that is told."""
        offered = ", ".join(sorted(self.simulators))
        reason = self.unsupported.get(simulator)
        return f"{offered} ({reason})" if reason else offered

    def resolve_overrides(self, overrides: Mapping[str, object]) -> TaskParameters:
        """The task's parameters with the manifest's overrides put over their defaults.

        Raises:
            SpecError: for each override that the task does not have, or whose value its
                parameter does not allow; the path is ``task.overrides.<key>``.
        """
        violations = [
            Violation(f"task.overrides.{key}", self._unknown_override(key))
            for key in overrides
            if key not in self.parameters.model_fields
        ]
        known = {k: v for k, v in overrides.items() if k in self.parameters.model_fields}
        resolved = self.parameters()
        try:
            resolved = self.parameters.model_validate(known)
        except ValidationError as error:
            violations += self._refused_values(error)
        if violations:
            raise SpecError(tuple(violations))
        return resolved

    def _refused_values(self, error: ValidationError) -> list[Violation]:
        properties = self.parameters.model_json_schema(by_alias=False).get("properties", {})
        names = {field.alias: name for name, field in self.parameters.model_fields.items()}
        found = []
        for item in error.errors(include_url=False):
            if not item["loc"]:  # a rule over several parameters
                message = item["msg"].removeprefix("Value error, ")
                found.append(Violation("task.overrides", message))
                continue
            name = names.get(str(item["loc"][0]), str(item["loc"][0]))
            message = f"must be {allowed(properties.get(name))}; got {show(item['input'])}"
            found.append(Violation(f"task.overrides.{name}", message))
        return found

    def _unknown_override(self, key: str) -> str:
        names = sorted(self.parameters.model_fields)
        if not names:
            return f"task {self.name!r} has no parameters to override"
        near = difflib.get_close_matches(key, names, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else f"it has: {', '.join(names)}"
        return f"task {self.name!r} has no parameter {key!r}; {hint}"


class UnknownTaskError(LookupError):
    """No task of that name is registered, or the entry point does not give one."""


def registered_tasks() -> tuple[str, ...]:
    """Names of the registered tasks, sorted; imports none of them."""
    return tuple(sorted(point.name for point in installed(TASK_GROUP)))


def load_task(config: TaskConfig) -> TaskSpec:
    """The `TaskSpec` that a manifest names.

    Raises:
        UnknownTaskError: with near matches, or with what failed on import.
    """
    if config.entry_point is not None:
        return _import(config.entry_point)
    for point in installed(TASK_GROUP):
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
