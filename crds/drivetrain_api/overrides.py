"""Command-line overrides: ``key=value`` put into a manifest before it is parsed.

A key is a path of the spec (``algo.num_envs``, ``training.logger``) or starts with
``metadata.``; each part in snake_case or camelCase. A value is JSON where it reads as JSON
(so ``64`` is an integer, ``1e-3`` a number, ``"64"`` text, ``[256, 256]`` a list), one of
YAML's words for true, false and null, and text otherwise.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic.alias_generators import to_camel

from drivetrain_api.checks import ALTERNATIVES
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.explain import (
    Located,
    allowed,
    hint,
    locate,
    properties_of,
    show,
    takes_any_key,
)
from drivetrain_api.refusals import removed
from drivetrain_api.schema import without_null

_WORDS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("True", "TRUE"), True),
    **dict.fromkeys(("False", "FALSE"), False),
    **dict.fromkeys(("Null", "NULL", "~"), None),
}
_ROOT_SECTIONS: Final = frozenset({"metadata", "spec"})

Document = dict[str, Any]


class _RefusedError(ValueError):
    """One override that cannot be applied."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.violation = Violation(path, message)


@dataclass(frozen=True)
class _Override:
    keys: tuple[str, ...]
    """snake_case keys from the manifest's root."""
    path: str
    value: object


def apply_overrides(document: Mapping[str, Any], overrides: Sequence[str]) -> Document:
    """A copy of `document` with the overrides in it; of two for one key the last wins.

    Whether a value is allowed is decided when the result is parsed.

    Args:
        document: A manifest; its sections may be absent.
        overrides: Texts such as ``algo.num_envs=64``.

    Raises:
        SpecError: for a text without ``=``, and an unknown or retired key.
    """
    result: Document = copy.deepcopy(dict(document))
    applied: list[_Override] = []
    refused: list[Violation] = []
    for text in overrides:
        try:
            override = _read(text)
            _put(result, override)
        except _RefusedError as error:
            refused.append(error.violation)
        else:
            applied.append(override)
    if refused:
        raise SpecError(tuple(refused))
    _displace_alternatives(result, applied)
    return result


def parse_value(text: str) -> object:
    """The value that the right side of an override stands for.

    Raises:
        ValueError: for a JSON object that names a key twice, or nesting without end.
    """
    if text in _WORDS:
        return _WORDS[text]
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except _DuplicateKeyError as error:
        raise ValueError(f"names key {error} twice") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError:
        return text


class _DuplicateKeyError(Exception):
    pass


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise _DuplicateKeyError(show(key))
        result[key] = value
    return result


def _read(text: str) -> _Override:
    key, equals, raw = text.partition("=")
    key = key.strip()
    parts = key.split(".")
    if not equals or not all(parts):
        raise _RefusedError("", f"override {show(text)} is not of the form key=value")
    keys = _checked(tuple(parts) if parts[0] in _ROOT_SECTIONS else ("spec", *parts))
    path = locate(keys).path
    try:
        return _Override(keys, path, parse_value(raw))
    except ValueError as error:
        raise _RefusedError(path, f"{show(raw)} {error}") from error


def _checked(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Follow `parts` through the models; the rest is one key where a map holds scalars."""
    place = locate(parts[:1])
    for index in range(1, len(parts)):
        above = place
        place = locate(parts[: index + 1])
        if takes_any_key(above.schema):
            return _snake_keys(parts[:index]) + _free_keys(above, parts[index:])
        if not properties_of(above.schema):
            raise _RefusedError(above.path, f"holds no keys: it is {allowed(above.schema)}")
        if place.schema is None:
            raise _RefusedError(place.path, _unknown(place))
    return _snake_keys(parts)


def _snake_keys(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        locate(parts[: end + 1]).path.rpartition(".")[2] if end else part
        for end, part in enumerate(parts)
    )


def _free_keys(above: Located, parts: tuple[str, ...]) -> tuple[str, ...]:
    values = without_null(above.schema or {})[0].get("additionalProperties")
    holds_scalars = isinstance(values, dict) and values.get("type") != "object"
    return (".".join(parts),) if holds_scalars else parts


def _unknown(place: Located) -> str:
    retired = removed(place.path)
    if retired is not None:
        return retired.message
    return f"unknown key; {hint(place.path, place.parent)}"


def _put(document: Document, override: _Override) -> None:
    node: MutableMapping[str, Any] = document
    for depth, key in enumerate(override.keys[:-1]):
        spelled = _spelling(node, key)
        child = node.get(spelled)
        if child is None:
            child = node[spelled] = {}
        if not isinstance(child, MutableMapping):
            place = locate(override.keys[: depth + 1])
            raise _RefusedError(place.path, f"must be a mapping; got {show(child)}")
        node = child
    node[_spelling(node, override.keys[-1])] = override.value


def _spelling(node: Mapping[str, Any], key: str) -> str:
    """How `node` spells `key` already, else as it stands on the wire."""
    if key in node:
        return key
    return to_camel(key) if "_" in key else key


def _displace_alternatives(document: Document, applied: Sequence[_Override]) -> None:
    """A length asked for on the command line replaces the manifest's other kind of length."""
    latest = {override.path: override.value for override in applied}
    for section, keys in ALTERNATIVES:
        if not any(latest.get(f"{section}.{key}") is not None for key in keys):
            continue
        spec = document.get("spec")
        node = spec.get(section) if isinstance(spec, MutableMapping) else None
        if not isinstance(node, MutableMapping):
            continue  # a later override replaced the section: parsing has its say
        for key in keys:
            if f"{section}.{key}" not in latest:
                node.pop(key, None)
                node.pop(to_camel(key), None)
