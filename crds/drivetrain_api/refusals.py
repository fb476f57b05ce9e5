"""pydantic's findings as violations that name the path, the value and what is allowed."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from drivetrain_api.errors import Violation
from drivetrain_api.explain import Located, allowed, hint, locate, properties_of, show
from drivetrain_api.training import REMOVED_KEYS

_RANGE_KINDS = frozenset(
    {
        "enum",
        "finite_number",
        "greater_than",
        "greater_than_equal",
        "less_than",
        "less_than_equal",
        "literal_error",
        "string_pattern_mismatch",
        "string_too_long",
        "string_too_short",
        "too_long",
        "too_short",
    }
)


def violations_of(error: ValidationError, prefix: tuple[str, ...] = ()) -> tuple[Violation, ...]:
    """Every finding of `error`, one for each path, in the order of the document.

    Args:
        error: What validation of a manifest, or of a part of one, raised.
        prefix: Where in the manifest the validated part stands, such as ``("spec",)``.
    """
    found: dict[str, Violation] = {}
    for detail in error.errors(include_url=False):
        violation = _violation(detail, prefix)
        found.setdefault(violation.path, violation)
    return tuple(found.values())


def removed(path: str) -> Violation | None:
    """The migration message of a retired key."""
    successor = REMOVED_KEYS.get(path)
    if successor is None:
        return None
    return Violation(path, f"was removed: use {successor} instead")


def _violation(detail: ErrorDetails, prefix: tuple[str, ...]) -> Violation:
    place = locate((*prefix, *detail["loc"]))
    kind = detail["type"]
    if kind == "extra_forbidden":
        return _unknown(place)
    if kind == "missing":
        return Violation(place.path, f"is required: {allowed(place.schema)}")
    if kind == "invalid_key":
        return Violation(place.path, "keys must be text")
    if place.schema is None and kind not in _RANGE_KINDS:
        return Violation(place.path, f"{detail['msg']}; got {show(detail['input'])}")
    return Violation(place.path, f"must be {allowed(place.schema)}; got {show(detail['input'])}")


def _unknown(place: Located) -> Violation:
    retired = removed(place.path)
    if retired is not None:
        return retired
    key = place.path.rpartition(".")[2]
    if key in properties_of(place.parent):
        return Violation(place.path, "is given twice, in snake_case and in camelCase")
    return Violation(place.path, f"unknown key; {hint(place.path, place.parent)}")
