"""What stands at a path of the spec, which values it takes, and what a typo may have meant."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic.alias_generators import to_camel

from drivetrain_api.base import INT64_MAX
from drivetrain_api.schema import Schema, inlined_schema, without_null
from drivetrain_api.trainingrun import TrainingRun

_SHOWN_CHARACTERS = 80
_CHOICES = re.compile(r"\^\((?P<names>[^()]+\|[^()]+)\)\$")
_LISTED_KEYS = 12
_NAMED_KEYS = 3


@dataclass(frozen=True)
class Located:
    """A place in a manifest."""

    path: str
    """snake_case, ``spec.`` left out: ``algo.num_envs``, ``metadata.name``."""
    schema: Schema | None
    """Schema of the value there; None below a free-form value or an unknown key."""
    parent: Schema | None
    """Schema of the object that holds its last key."""


def manifest_schema() -> Schema:
    """Schema of a TrainingRun manifest, snake_case."""
    return inlined_schema(TrainingRun, by_alias=False)


def snake_key(schema: Schema | None, key: str) -> str:
    """The snake_case name of `key` in an object, where the object has such a key."""
    properties = properties_of(schema)
    if key in properties:
        return key
    return next((name for name in properties if to_camel(name) == key), key)


def properties_of(schema: Schema | None) -> Mapping[str, Schema]:
    """Named properties of an object's schema; empty for anything else."""
    if schema is None:
        return {}
    properties: Mapping[str, Schema] = without_null(schema)[0].get("properties", {})
    return properties


def locate(location: Sequence[str | int]) -> Located:
    """Follow keys (either spelling) and indices from the manifest's root.

    What follows a scalar is dropped: pydantic appends the name of a union's branch there.
    """
    schema: Schema | None = manifest_schema()
    parent: Schema | None = None
    path = ""
    for step in location:
        if schema is not None and not _is_container(schema):
            break
        parent = schema
        if isinstance(step, int):
            path = f"{path}[{step}]"
        else:
            key = snake_key(schema, step)
            if key == step and not takes_any_key(schema):
                key = _snake(step)
            path = f"{path}.{key}" if path else key
        schema = _child(schema, step)
    return Located(path.removeprefix("spec."), schema, parent)


def _is_container(schema: Schema) -> bool:
    plain = without_null(schema)[0]
    return plain.get("type") in ("object", "array")


def _child(schema: Schema | None, step: str | int) -> Schema | None:
    if schema is None:
        return None
    plain = without_null(schema)[0]
    if isinstance(step, int):
        fixed = plain.get("prefixItems", ())
        item = fixed[step] if step < len(fixed) else plain.get("items")
        return item if isinstance(item, dict) else None
    named: Mapping[str, Schema] = plain.get("properties", {})
    key = snake_key(plain, step)
    if key in named:
        return named[key]
    extra = plain.get("additionalProperties")
    return extra if isinstance(extra, dict) else None


def takes_any_key(schema: Schema | None) -> bool:
    """Whether an object is a free-form map (overrides, labels, the pod template)."""
    if schema is None:
        return True
    plain = without_null(schema)[0]
    return plain.get("type") == "object" and bool(plain.get("additionalProperties"))


def allowed(schema: Schema | None) -> str:
    """What a value may be, in words: ``an integer from 1 to 16``."""
    if schema is None:
        return "a value"
    branches = schema.get("anyOf")
    if branches is not None:
        return " or ".join(allowed(branch) for branch in branches)
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
    if values is not None:
        return _one_of([str(value) for value in values])
    return _IN_WORDS.get(schema.get("type", ""), _anything)(schema)


def _anything(_: Schema) -> str:
    return "a value"


def _one_of(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"one of {', '.join(values)}"


def _range(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if (low, high) == (-INT64_MAX - 1, INT64_MAX):
        return ""
    if low is not None and high is not None:
        return f" from {low:.17g} to {high:.17g}"
    bounds = [
        f"{words} {bound:.17g}"
        for words, bound in (
            ("of at least", low),
            ("above", above),
            ("below", below),
            ("at most", high),
        )
        if bound is not None
    ]
    return f" {' and '.join(bounds)}" if bounds else ""


def _text(schema: Schema) -> str:
    if schema.get("format") == "date-time":
        return "a date and time as in 2026-01-31T12:00:00Z"
    choices = _CHOICES.fullmatch(schema.get("pattern", ""))
    if choices is not None:
        return _one_of(choices["names"].split("|"))
    size = _size(schema, "minLength", "maxLength", "characters")
    pattern = f" matching {schema['pattern']}" if "pattern" in schema else ""
    return f"text{size}{pattern}"


def _size(schema: Schema, least: str, most: str, unit: str) -> str:
    low, high = schema.get(least), schema.get(most)
    if low is not None and high is not None:
        return f" of {low} {unit}" if low == high else f" of {low} to {high} {unit}"
    if high is not None:
        return f" of at most {high} {unit}"
    return f" of at least {low} {unit}" if low is not None else ""


_IN_WORDS: Final[Mapping[str, Callable[[Schema], str]]] = {
    "integer": lambda schema: f"an integer{_range(schema)}",
    "number": lambda schema: f"a finite number{_range(schema)}",
    "boolean": lambda _: "true or false",
    "null": lambda _: "null",
    "string": _text,
    "array": lambda schema: f"a list{_size(schema, 'minItems', 'maxItems', 'items')}",
    "object": lambda schema: f"a mapping{_size(schema, 'minProperties', 'maxProperties', 'keys')}",
}


def show(value: object) -> str:
    """A value as a person would write it in a manifest, cut to a readable length."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        text = str(type(value).__name__)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


@cache
def known_paths() -> tuple[str, ...]:
    """Every settable path of the spec, in the models' order."""
    return tuple(_walk(manifest_schema()["properties"]["spec"], ""))


def _walk(schema: Schema, prefix: str) -> Iterator[str]:
    for name, child in properties_of(schema).items():
        path = f"{prefix}{name}"
        yield path
        yield from _walk(child, f"{path}.")


def hint(path: str, parent: Schema | None) -> str:
    """What an unknown `path` may have meant, as the end of a sentence.

    A key of that name in another section comes first, then near spellings beside it.
    """
    section, _, written = path.rpartition(".")
    key = _snake(written)
    beside = list(properties_of(parent))
    spelled = difflib.get_close_matches(key, beside, n=3, cutoff=0.6)
    near = _ending_in(key) or [f"{section}.{name}" if section else name for name in spelled]
    if not near:
        leaves = {known.rpartition(".")[2] for known in known_paths()}
        near = [
            known
            for leaf in difflib.get_close_matches(key, leaves, n=2, cutoff=0.8)
            for known in _ending_in(leaf)
        ]
    if near:
        return f"did you mean {' or '.join(_both_spellings(name) for name in near[:_NAMED_KEYS])}?"
    if beside and len(beside) <= _LISTED_KEYS:
        return f"known here: {', '.join(beside)}"
    return "no such setting"


def _ending_in(key: str) -> list[str]:
    return [known for known in known_paths() if known.rpartition(".")[2] == key]


def _snake(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)


def _both_spellings(path: str) -> str:
    wire = ".".join(to_camel(part) for part in path.split("."))
    return path if wire == path else f"{path} ({wire})"


def plain_object(value: object) -> Mapping[str, Any]:
    """`value` where it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}
