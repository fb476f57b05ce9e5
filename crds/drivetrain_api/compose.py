"""From a document to a complete configuration.

Composition order: the models' defaults < the task's preset for the algorithm < its preset for
the simulator < what the manifest set (command-line overrides are put into the manifest before, by
`drivetrain_api.overrides`). A refusal is a `SpecError` with every violation found.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from drivetrain_api.algorithms import ALGO_LOG_NAMES, AVAILABLE_ALGORITHMS, AlgoName
from drivetrain_api.checks import (
    ALTERNATIVES,
    collector_residency,
    composed_violations,
    env_steps_per_iteration,
    manifest_violations,
)
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.explain import plain_object, show
from drivetrain_api.refusals import violations_of
from drivetrain_api.soak import UNSOAKABLE, unsoakable
from drivetrain_api.tasks import TaskSpec, UnknownTaskError, load_task
from drivetrain_api.training import Simulator
from drivetrain_api.trainingrun import TrainingRun, TrainingRunSpec

PRESET_SECTIONS: Final = frozenset({"algo", "training", "evaluator", "checkpoint"})
"""Sections of the spec that a task may preset."""

_CHECKPOINTS_A_RUN = 10


def parse_run(document: Mapping[str, Any]) -> TrainingRun:
    """A TrainingRun from a manifest, or from an object that the API server returned.

    Keys may be camelCase (the wire) or snake_case. Unset fields stay unset.

    Raises:
        SpecError: with the snake_case path, the value and the allowed range of each refusal.
    """
    if not isinstance(document, Mapping):
        raise SpecError((Violation("", f"a manifest is a mapping; got {show(document)}"),))
    named = tuple(_algorithm_violations(document))
    try:
        run = TrainingRun.model_validate(dict(document))
    except ValidationError as error:
        found = violations_of(error)
        if named:
            found = (*named, *(v for v in found if not v.path.startswith("algo")))
        raise SpecError(found) from None
    refused = (*named, *manifest_violations(run.spec))
    if refused:
        raise SpecError(refused)
    return run


def _algorithm_violations(document: Mapping[str, Any]) -> Iterator[Violation]:
    """Refuse an algorithm by name before its keys are read by another one's model."""
    spec = document.get("spec")
    algo = spec.get("algo") if isinstance(spec, Mapping) else None
    if not isinstance(algo, Mapping):
        return
    available = ", ".join(sorted(AVAILABLE_ALGORITHMS))
    if "name" not in algo:
        yield Violation("algo.name", f"is required; available: {available}")
        return
    name = algo["name"]
    if not isinstance(name, str) or name not in set(AlgoName):
        near = difflib.get_close_matches(str(name).lower(), list(AVAILABLE_ALGORITHMS), n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        yield Violation(
            "algo.name", f"unknown algorithm {show(name)}; {meant}available: {available}"
        )
    elif name not in AVAILABLE_ALGORITHMS:
        yield Violation(
            "algo.name", f"{name} is not available in this release; available: {available}"
        )
        if AlgoName(name) in UNSOAKABLE and plain_object(spec).get("soak") is not None:
            yield Violation("soak", unsoakable(AlgoName(name)))


def resolve_task(spec: TrainingRunSpec) -> TaskSpec:
    """The task that a spec names.

    Imports the module of a ``task.entry_point``: never call it on somebody else's manifest.

    Raises:
        SpecError: at ``task.name`` (or ``task.entry_point``), with near matches.
    """
    try:
        return load_task(spec.task)
    except UnknownTaskError as error:
        field = "name" if spec.task.entry_point is None else "entry_point"
        raise SpecError((Violation(f"task.{field}", str(error)),)) from error


def compose(spec: TrainingRunSpec, task: TaskSpec) -> TrainingRunSpec:
    """The complete configuration of a run: nothing is left for the trainer to default.

    Seeds, the checkpoint interval, ingress slot rows, the log root and, where the
    configuration alone decides it, collector residency are resolved; what depends on the
    machine (``auto`` devices and precision) is not. Composing a composed spec changes nothing.

    Raises:
        SpecError: for options that contradict one another, or a preset that is not valid.
    """
    merged = chosen(spec, task)
    composed = _validated(merged, task)
    refused = tuple(composed_violations(composed, task))
    if refused:
        raise SpecError(refused)
    return TrainingRunSpec.model_validate(layered(composed.model_dump(), _resolved(composed, task)))


def chosen(spec: TrainingRunSpec, task: TaskSpec) -> dict[str, Any]:
    """What a preset or the manifest sets; all else is left to the models' defaults.

    Raises:
        SpecError: see `plain_preset`.
    """
    manifest = spec.model_dump(exclude_unset=True)
    manifest.setdefault("algo", {})["name"] = spec.algo.name
    return layered(plain_preset(task, spec.algo.name, spec.sim), manifest)


def plain_preset(
    task: TaskSpec, algorithm: AlgoName, simulator: Simulator | None = None
) -> dict[str, Any]:
    """The task's partial spec for an algorithm, and for a simulator where one is given.

    Empty where it has none.

    Raises:
        SpecError: for a section that is not a task's to preset, or no mapping.
    """
    preset = task.presets.get(algorithm, {})
    special: Mapping[str, Any] = {}
    if simulator is not None:
        special = task.simulator_presets.get(simulator, {})
    refused = tuple(
        Violation(section, f"in the preset of task {task.name}: {problem}")
        for layer in (preset, special)
        for section, keys in layer.items()
        if (problem := _section_problem(section, keys)) is not None
    )
    if refused:
        raise SpecError(refused)
    return layered(preset, special)


def _section_problem(section: str, keys: object) -> str | None:
    if section not in PRESET_SECTIONS:
        return f"a preset holds {', '.join(sorted(PRESET_SECTIONS))} alone"
    return None if isinstance(keys, Mapping) else f"must be a mapping; got {show(keys)}"


def layered(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` put over `below`, mappings key by key, anything else as a whole.

    A key that `above` chooses displaces its alternative in `below` (see `ALTERNATIVES`).
    """
    lower = {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in below.items()
    }
    for section, keys in ALTERNATIVES:
        chosen = plain_object(above.get(section))
        if any(chosen.get(key) is not None for key in keys) and isinstance(
            lower.get(section), dict
        ):
            for key in keys:
                lower[section].pop(key, None)
    return _merged(lower, above)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            result[key] = _merged(under, value)
        else:
            result[key] = value
    return result


def _validated(merged: Mapping[str, Any], task: TaskSpec) -> TrainingRunSpec:
    """Only a preset can be wrong here: the manifest was a valid model already."""
    try:
        return TrainingRunSpec.model_validate(merged)
    except ValidationError as error:
        raise SpecError(
            tuple(
                Violation(v.path, f"in the preset of task {task.name}: {v.message}")
                for v in violations_of(error, prefix=("spec",))
            )
        ) from error


def _resolved(spec: TrainingRunSpec, task: TaskSpec) -> dict[str, dict[str, Any]]:
    training, algo = spec.training, spec.algo
    total = training.total_env_steps or (training.iterations or 0) * env_steps_per_iteration(spec)
    log_root = training.log_root
    if log_root is None and training.log_dir is None:
        log_root = f"logs/{ALGO_LOG_NAMES[algo.name]}/{spec.task.name}"
    residency = collector_residency(spec, task)
    return {
        "algo": {"seed": spec.seed if algo.seed is None else algo.seed},
        "env": {
            "seed": derived_seed(spec.seed, "env") if spec.env.seed is None else spec.env.seed,
            "collector_tensor_device": spec.env.collector_tensor_device or residency,
        },
        "training": {
            "replay_ingress_slot_rows": training.replay_ingress_slot_rows or algo.num_envs,
            "log_root": log_root,
        },
        "checkpoint": {"interval": spec.checkpoint.interval or -(-total // _CHECKPOINTS_A_RUN)},
    }


def derived_seed(seed: int, purpose: str) -> int:
    """A seed of 32 bits for one purpose; unlike `seed` itself, so that streams differ."""
    return int.from_bytes(hashlib.sha256(f"{purpose}:{seed}".encode()).digest()[:4], "big")
