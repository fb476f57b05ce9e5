"""The variants that a grid, a list or a random search amounts to."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.explain import locate, show
from drivetrain_api.suite import MAX_VARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pydantic import JsonValue

    from drivetrain_api.suite import Distribution, RandomSearch, SuiteSpec

DEFAULT: Final = "default"
"""Name of the one variant of a suite that searches nothing."""
_RESERVED: Final = {
    "seed": "seeds sets it",
    "algo.seed": "it would be one for all seeds",
    "env.seed": "it would be one for all seeds",
    "training.log_dir": "the suite decides where members' files lie",
    "training.log_root": "the suite decides where members' files lie",
    "experiment": "the suite writes it",
    "metadata": "the suite names its members",
}
"""Paths that neither a search nor a template sets, and why."""
_NAME_LIMIT: Final = 63
_REDRAWS: Final = 100
_DIGITS: Final = 6
"""Significant digits of a number that is drawn."""


@dataclass(frozen=True)
class Variant:
    """Where a group of members differs from the template."""

    name: str
    """Of its folder and label."""
    overrides: Mapping[str, JsonValue]
    """snake_case path of the spec -> value."""


def variants_of(spec: SuiteSpec) -> tuple[Variant, ...]:
    """The variants in order; `DEFAULT` alone where nothing is searched.

    Raises:
        SpecError: for a path that the suite itself sets, one named twice, values or names
            that repeat, too many combinations, and a random search with too few.
    """
    if spec.grid is not None:
        return _grid({path: tuple(values) for path, values in spec.grid.items()})
    if spec.random is not None:
        return _random(spec.random)
    if spec.listed is not None:
        names = Counter(variant.name for variant in spec.listed)
        _refuse(
            Violation("spec.list", f"names variant {name!r} {count} times")
            for name, count in names.items()
            if count > 1
        )
        return tuple(
            Variant(v.name, _canonical(v.overrides, f"spec.list.{i}.set"))
            for i, v in enumerate(spec.listed)
        )
    return (Variant(DEFAULT, {}),)


def reserved(path: str) -> str | None:
    """Why a snake_case path of the manifest is not a user's to set here; None where it is."""
    for name, why in _RESERVED.items():
        if path == name or path.startswith(f"{name}."):
            return why
    return None


def short_hash(overrides: Mapping[str, JsonValue]) -> str:
    """Seven hexadecimal digits that tell variants apart."""
    text = json.dumps(overrides, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:7]


def _refuse(violations: Iterable[Violation]) -> None:
    found = tuple(violations)
    if found:
        raise SpecError(found)


def _canonical(given: Mapping[str, JsonValue], where: str) -> dict[str, JsonValue]:
    """Keys as snake_case paths."""
    return {path: given[key] for path, key in _paths(given, where).items()}


def _paths(given: Iterable[str], where: str) -> dict[str, str]:
    """snake_case path -> the key that names it."""
    found: dict[str, str] = {}
    for key in given:
        parts = key.split(".")
        steps = parts if parts[0] in ("spec", "metadata") else ["spec", *parts]
        path = locate(steps).path
        why = reserved(path)
        if why is not None:
            _refuse([Violation(f"{where}.{key}", f"cannot be searched: {why}")])
        if path in found:
            _refuse([Violation(f"{where}.{key}", f"is {found[path]} in another spelling")])
        found[path] = key
    return found


def _grid(grid: Mapping[str, Sequence[JsonValue]]) -> tuple[Variant, ...]:
    for path, values in grid.items():
        counts = Counter(json.dumps(value, sort_keys=True) for value in values)
        _refuse(
            Violation(f"spec.grid.{path}", f"names {text} {count} times")
            for text, count in counts.items()
            if count > 1
        )
    size = math.prod(len(values) for values in grid.values())
    if size > MAX_VARIANTS:
        words = f"makes {size} combinations; at most {MAX_VARIANTS} are allowed"
        _refuse([Violation("spec.grid", words)])
    paths = _paths(grid, "spec.grid")
    combinations = itertools.product(*(grid[key] for key in paths.values()))
    return _named([dict(zip(paths, values, strict=True)) for values in combinations])


def _named(found: Sequence[dict[str, JsonValue]]) -> tuple[Variant, ...]:
    """Variants with names that tell their values, or a hash where that is not possible."""
    names = [_telling_name(overrides) for overrides in found]
    repeated = {name for name, count in Counter(names).items() if count > 1}
    return tuple(
        Variant(f"v{short_hash(o)}" if name is None or name in repeated else name, o)
        for name, o in zip(names, found, strict=True)
    )


def _telling_name(overrides: Mapping[str, JsonValue]) -> str | None:
    """Such as ``actor_learning_rate-0.001_tau-0.01``; None where it cannot be told shortly."""
    leaves = Counter(path.rpartition(".")[2] for path in overrides)
    parts = []
    for path, value in overrides.items():
        leaf = path.rpartition(".")[2]
        parts.append(f"{leaf if leaves[leaf] == 1 else path}-{_told(value)}")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", "_".join(parts)).strip("-_.")
    return name if name and len(name) <= _NAME_LIMIT else None


def _told(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "x".join(_told(item) for item in value)
    return json.dumps(value)


def _random(search: RandomSearch) -> tuple[Variant, ...]:
    paths = _paths(search.parameters, "spec.random.parameters")
    drawn: dict[str, dict[str, JsonValue]] = {}
    for index in range(search.count):
        for attempt in range(_REDRAWS):
            overrides = {
                path: _draw(search.parameters[key], f"{search.seed}:{index}:{attempt}:{path}")
                for path, key in paths.items()
            }
            text = json.dumps(overrides, sort_keys=True)
            if text not in drawn:
                drawn[text] = overrides
                break
        else:
            words = (
                f"{show(search.count)} different draws were not found, {index} were: "
                "widen the parameters, or write a grid"
            )
            _refuse([Violation("spec.random.count", words)])
    return tuple(Variant(f"draw-{i:03d}", overrides) for i, overrides in enumerate(drawn.values()))


def _draw(source: Distribution, seed: str) -> JsonValue:
    """A value; the same for a seed on every machine and in every version of Python."""
    share = random.Random(seed).random()  # noqa: S311 - a search, no secret
    if source.choice is not None:
        return source.choice[int(share * len(source.choice))]
    if source.integer is not None:
        low, high = source.integer
        return low + int(share * (high - low + 1))
    if source.log_uniform is not None:
        bottom, top = source.log_uniform
        value = math.exp(math.log(bottom) + share * (math.log(top) - math.log(bottom)))
        return _within(value, bottom, top)
    assert source.uniform is not None
    bottom, top = source.uniform
    return _within(bottom + share * (top - bottom), bottom, top)


def _within(value: float, low: float, high: float) -> float:
    """The value at a readable length, still between its bounds."""
    return min(max(float(f"{value:.{_DIGITS}g}"), low), high)


def set_paths(template: Mapping[str, object]) -> Iterator[str]:
    """snake_case paths that a template's spec sets, sections included."""
    yield from _walk(template, ())


def _walk(node: Mapping[str, object], above: tuple[str, ...]) -> Iterator[str]:
    for key, value in node.items():
        keys = (*above, str(key))
        if value is not None:
            yield locate(("spec", *keys)).path
        if isinstance(value, dict):
            yield from _walk(value, keys)
