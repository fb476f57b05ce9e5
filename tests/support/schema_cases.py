"""Values at and beyond each bound of a structural schema, with what the server says to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]
KEEPS = "x-kubernetes-preserve-unknown-fields"
_TIME = "2026-01-02T03:04:05Z"
_EXAMPLES = (
    "mps",
    "half_cheetah",
    "module.sub:attribute",
    "cuda:1",
    "10Gi",
    "0=4G, 1=512M",
    "-1.5e+3",
    "InvalidSpec",
    "0" * 64,
)
"""One that fits each pattern of the schema."""
_NOT = {
    "integer": "1",
    "number": "1",
    "string": 1,
    "boolean": "true",
    "array": {},
    "object": [],
}
"""A value of another type."""


@dataclass(frozen=True)
class Case:
    """A value at one place of the schema, and the verdict on it."""

    path: str
    """Such as ``spec.algo.adamBetas[]``."""
    rule: str
    """The keyword that it tests."""
    value: Any
    says: str | None = None
    """Part of the refusal's message; accepted where None."""
    within: bool = False
    """Whether the refusal names the items, or what is missing, below the path."""

    @property
    def id(self) -> str:
        """Of the parametrized test."""
        verdict = "accepted" if self.says is None else "refused"
        return f"{self.path}-{self.rule}-{verdict}"


def walk(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every place of the schema below a path, lists' items as ``[]``."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    if schema.get("type") == "array":
        yield from walk(schema["items"], f"{path}[]")


def cases(schema: Schema, root: str) -> list[Case]:
    """All of the schema at `root`, an object."""
    return [
        case
        for path, node in walk(schema, root)
        if path != root
        for check in (_type, _range, _enum, _text, _items, _required)
        for case in check(path, node)
    ]


def _type(path: str, node: Schema) -> Iterator[Case]:
    if "type" not in node:
        return
    yield Case(path, "type", minimal(node))
    date = node.get("format") == "date-time"
    says = f"must be of type {'date-time' if date else node['type']}"
    yield Case(path, "type", {} if date else _NOT[node["type"]], says)


def _range(path: str, node: Schema) -> Iterator[Case]:
    for bound, direction, word in (("minimum", -1, "greater"), ("maximum", 1, "less")):
        if bound not in node:
            continue
        limit = node[bound]
        step = 1 if node["type"] == "integer" else max(abs(limit), 1) * 1e-6
        exclusive = f"exclusive{bound.capitalize()}" in node
        says = f"should be {word} than {limit}" if exclusive else f"should be {word} than or equal"
        refused = limit if exclusive else limit + direction * step
        yield Case(path, bound, limit - direction * step if exclusive else limit)
        yield Case(path, bound, refused, says)
    if node.get("type") == "integer" and "maximum" not in node:
        yield Case(path, "format", 2**63 - 1)


def _enum(path: str, node: Schema) -> Iterator[Case]:
    for value in node.get("enum", ()):
        yield Case(path, "enum", value)
    if "enum" in node:
        listed = ", ".join(f'"{value}"' for value in node["enum"])
        yield Case(
            path, "enum", "no-such", f'Unsupported value: "no-such": supported values: {listed}'
        )


def _text(path: str, node: Schema) -> Iterator[Case]:
    if "maxLength" in node:
        limit = node["maxLength"]
        if "pattern" not in node:
            yield Case(path, "maxLength", "é" * limit)
        yield Case(path, "maxLength", "0" * (limit + 1), f"may not be more than {limit} bytes")
    if node.get("minLength"):
        yield Case(path, "minLength", "", f"should be at least {node['minLength']} chars long")
    if "pattern" in node:
        yield Case(path, "pattern", minimal(node))
        wrong = next(text for text in ("!", "#", "/") if not re.search(node["pattern"], text))
        yield Case(path, "pattern", wrong, f"should match '{node['pattern']}'")
    if node.get("format") == "date-time":
        yield Case(path, "format", "yesterday", "must be of type date-time")


def _items(path: str, node: Schema) -> Iterator[Case]:
    if node.get("type") != "array":
        return
    distinct = node.get("x-kubernetes-list-type") == "map"
    limit, item = node["maxItems"], minimal(node["items"])
    if not distinct:
        yield Case(path, "maxItems", [item] * limit)
    else:
        yield Case(path, "list-map-keys", [item, item], "Duplicate value", within=True)
    yield Case(path, "maxItems", [item] * (limit + 1), f"must have at most {limit} items")
    least = node.get("minItems", 0)
    if least:
        says = f"should have at least {least} items"
        yield Case(path, "minItems", [item] * (least - 1), says)


def _required(path: str, node: Schema) -> Iterator[Case]:
    for name in node.get("properties", {}):
        if name not in node.get("required", ()):  # the server takes null for unset
            yield Case(f"{path}.{name}", "null", None)
    for name in node.get("required", ()):
        value = minimal(node)
        del value[name]
        yield Case(path, f"required {name}", value, "Required value", within=True)


def minimal(node: Schema) -> Any:
    """The smallest value that the schema accepts."""
    if "enum" in node:
        return node["enum"][0]
    make = _MINIMAL.get(node.get("type", ""))
    return 1 if make is None else make(node)  # 1 where any type will do


def _object(node: Schema) -> Any:
    properties = node.get("properties", {})
    return {name: minimal(properties[name]) for name in node.get("required", ())}


def _text_for(node: Schema) -> str:
    if node.get("format") == "date-time":
        return _TIME
    pattern = node.get("pattern", "")
    return next(text for text in _EXAMPLES if re.fullmatch(pattern.strip("^$") or ".*", text))


_MINIMAL: dict[str, Callable[[Schema], Any]] = {
    "object": _object,
    "array": lambda node: [minimal(node["items"])] * node.get("minItems", 0),
    "integer": lambda node: node.get("minimum", 0),
    "number": lambda node: (node["minimum"] + node["maximum"]) / 2,
    "boolean": lambda _: False,
    "string": _text_for,
}


def placed(schema: Schema, path: str, value: Any) -> Any:
    """`value` at the place, within the smallest object that may hold it.

    `path` is relative to the schema: ``algo.adamBetas[]``, or empty.
    """
    if not path:
        return value
    if path.startswith("[]"):
        rest = path[2:].removeprefix(".")
        item = placed(schema["items"], rest, value)
        filler = minimal(schema["items"])
        return [item, *[filler] * (schema.get("minItems", 1) - 1)]
    name, _, rest = path.partition(".")
    if name.endswith("[]"):
        name, rest = name.removesuffix("[]"), f"[].{rest}" if rest else "[]"
    result = minimal(schema)
    result[name] = placed(schema["properties"][name], rest, value)
    return result
