"""YAML's scalars and its look: the 1.2 core schema in, files for people out.

Under it ``1e-3`` is a number, ``yes`` and ``010`` are text, and dates stay text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

TAG: Final = "tag:yaml.org,2002:"
"""Prefix of YAML's own tags."""

Scalar = str | int | float | bool | None

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,39})")
_BREAKS: Final = frozenset("\x85\u2028\u2029")
"""Line breaks of YAML 1.1 that plain text would lose."""
_PREFIXED = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(
    r"(?=.*[.eE])[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_CONSTANTS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def resolve(text: str) -> Scalar:
    """The value of a plain scalar under YAML 1.2's core schema.

    Integers of more than 40 digits, and those with leading zeros (octal in one YAML, decimal
    in the other), stay text and are refused by the model that expects a number.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _PREFIXED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


class _Dumper(yaml.SafeDumper):
    """Keeps the order given, repeats instead of aliasing, quotes what YAML 1.2 would convert."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT001, FBT002 - the emitter's own signature
        del indentless
        super().increase_indent(flow, indentless=False)


_Dumper.add_implicit_resolver(f"{TAG}float", _FLOAT, list("-+.0123456789"))
_Dumper.add_implicit_resolver(f"{TAG}int", _PREFIXED, ["0"])


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Text; escaped where YAML would fold a Unicode line break into a space."""
    style = '"' if _BREAKS & set(value) else None
    return dumper.represent_scalar(f"{TAG}str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(content: Mapping[str, Any], *, nulls: bool = False) -> str:
    """YAML of plain values for people: keys in the order given, mappings without nulls.

    Args:
        content: What to write.
        nulls: Keep keys whose value is null, where that says something.
    """
    shown = content if nulls else _without_nulls(content)
    text: str = yaml.dump(shown, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def _without_nulls(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    return value
