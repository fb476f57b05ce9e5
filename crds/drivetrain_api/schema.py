"""The models as one JSON schema without references: what explanations and the CRD start from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_REF_PREFIX = "#/$defs/"


@cache
def inlined_schema(model: type[BaseModel], *, by_alias: bool) -> Schema:
    """JSON schema of `model` with every ``$ref`` replaced by what it names.

    The result is shared between callers: read it, or copy it before a change.

    Args:
        model: The model; it must not be recursive.
        by_alias: Name properties in camelCase (the wire) rather than snake_case.
    """
    schema = model.model_json_schema(by_alias=by_alias)
    definitions = schema.pop("$defs", {})
    resolved: Schema = _inline(schema, definitions)
    return resolved


def _inline(node: Any, definitions: Mapping[str, Schema]) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    siblings = {key: _inline(value, definitions) for key, value in node.items() if key != "$ref"}
    reference = node.get("$ref")
    if reference is None:
        return siblings
    target = _inline(definitions[reference.removeprefix(_REF_PREFIX)], definitions)
    return {**target, **siblings}


def without_null(schema: Schema) -> tuple[Schema, bool]:
    """`schema` with a ``null`` alternative taken out, and whether there was one."""
    branches = schema.get("anyOf")
    if branches is None:
        return schema, False
    kept = [branch for branch in branches if branch.get("type") != "null"]
    nullable = len(kept) < len(branches)
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    if len(kept) == 1:
        return {**kept[0], **rest}, nullable
    return {**rest, "anyOf": kept}, nullable
