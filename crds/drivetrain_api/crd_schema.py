"""From the models' JSON schema to the structural schema that Kubernetes takes.

Differences that matter: no ``$ref`` and no titles; ``null`` is a flag; exclusive bounds are
flags too; a list has one schema for its items; closed objects are the rule and unknown keys
are pruned. Defaults are said in the description and never set: the server would write them
into the spec, and composition could no longer tell what the user asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from drivetrain_api.base import INT32_MAX, INT64_MAX
from drivetrain_api.compose import PRESET_SECTIONS
from drivetrain_api.schema import Schema, without_null

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
LIST_TYPE: Final = "x-kubernetes-list-type"

ALWAYS_WRITTEN: Final = frozenset({"spec.algo.name"})
"""Required in a manifest though the model has a default: it tells which model is meant."""

_KEPT: Final = (
    "type",
    "format",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
)


def structural(node: Schema, *, path: str = "", nullable: bool = True) -> Schema:
    """The structural schema of a JSON schema without references.

    Args:
        node: What pydantic generated, by alias, references inlined.
        path: camelCase path of the node, to know whose defaults a task may preset.
        nullable: Whether ``null`` may stand for an unset value (a spec: yes, a status: no).
    """
    plain, has_null = without_null(node)
    result: Schema = {}
    text = _description(plain, path)
    if text:
        result["description"] = text
    result |= {key: plain[key] for key in _KEPT if key in plain}
    result |= _values(plain) | _bounds(plain)
    if has_null and nullable:
        result["nullable"] = True
        if "enum" in result:
            # The API server refuses null beside an enum, though the schema allows it.
            names = result.pop("enum")
            result["pattern"] = f"^({'|'.join(map(re.escape, names))})$"
            result["maxLength"] = max(map(len, names))
    if "anyOf" in plain:
        result[PRESERVE] = True
    if plain.get("type") == "array":
        result |= _list(plain, path, nullable=nullable)
    if plain.get("type") == "object":
        result |= _object(plain, path, nullable=nullable)
    result |= {key: value for key, value in plain.items() if key.startswith("x-kubernetes-")}
    return result


def _description(plain: Schema, path: str) -> str:
    text = " ".join(str(plain.get("description", "")).split())
    default = plain.get("default")
    if default is None or isinstance(default, Mapping) or not path.startswith("spec."):
        return text
    if path in ALWAYS_WRITTEN:
        return text
    section = path.split(".")[1]
    otherwise = ", or the task's preset" if section in PRESET_SECTIONS else ""
    return f"{text} Default: {_yaml_word(default)}{otherwise}."


def _yaml_word(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return value if isinstance(value, str) else json.dumps(value)


def _values(plain: Schema) -> Schema:
    if "const" in plain:
        return {"enum": [plain["const"]]}
    return {"enum": list(plain["enum"])} if "enum" in plain else {}


def _bounds(plain: Schema) -> Schema:
    """Bounds as OpenAPI 3.0 has them, and the width that they fit."""
    kind = plain.get("type")
    if kind not in ("integer", "number"):
        return {}
    result: Schema = {"format": "double"}
    if kind == "integer":
        wide = not -INT32_MAX <= plain["minimum"] <= plain["maximum"] <= INT32_MAX
        result = {"format": "int64" if wide else "int32"}
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        limit = plain.get(exclusive, plain.get(bound))
        if limit is None or abs(limit) >= INT64_MAX:
            continue  # the format says as much, and the server keeps bounds as doubles
        result[bound] = int(limit) if limit == int(limit) else limit
        if exclusive in plain:
            result[exclusive] = True
    return result


def _list(plain: Schema, path: str, *, nullable: bool) -> Schema:
    fixed = plain.get("prefixItems")
    items = plain["items"] if fixed is None else fixed[0]
    if fixed is not None and any(item != items for item in fixed):
        raise ValueError(f"{path}: a structural schema has one schema for all items of a list")
    return {
        "items": structural(items, path=f"{path}[]", nullable=nullable),
        LIST_TYPE: plain.get(LIST_TYPE, "atomic"),
    }


def _object(plain: Schema, path: str, *, nullable: bool) -> Schema:
    properties = plain.get("properties")
    if properties is None:
        values = plain.get("additionalProperties")
        if not isinstance(values, dict):
            return {PRESERVE: True}
        return {"additionalProperties": structural(values, path=f"{path}.*", nullable=nullable)}
    result: Schema = {
        "properties": {
            name: structural(child, path=f"{path}.{name}", nullable=nullable)
            for name, child in properties.items()
        }
    }
    required = [
        name
        for name in properties
        if name in plain.get("required", ()) or f"{path}.{name}" in ALWAYS_WRITTEN
    ]
    if required:
        result["required"] = required
    return result
