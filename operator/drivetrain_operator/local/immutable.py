"""What the API server's transition rules refuse, refused here in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drivetrain_api.crd_rules import IMMUTABLE, RULES
from drivetrain_api.errors import Violation
from drivetrain_api.explain import locate, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drivetrain_api.trainingrun import TrainingRunSpec

_RESUME_FROM = ("checkpoint", "resumeFrom")


def changed(old: TrainingRunSpec, new: TrainingRunSpec) -> Iterator[Violation]:
    """Values that differ although they must not, each with what is stored and what was wanted."""
    before, after = _wire(old), _wire(new)
    words = {rule.field_path: rule.message for rule in RULES["spec"]}
    for keys in (*((name,) for name in IMMUTABLE), _RESUME_FROM):
        message = words[f".{'.'.join(keys)}"]
        for path, stored, wanted in _differences(keys, _at(before, keys), _at(after, keys)):
            values = f"stored {_shown(stored)}; got {_shown(wanted)}"
            yield Violation(locate(("spec", *path)).path, f"{message}; {values}")


def _wire(spec: TrainingRunSpec) -> Mapping[str, Any]:
    wire: Mapping[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return wire


def _at(wire: Mapping[str, Any], keys: tuple[str, ...]) -> object:
    found: Any = wire
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _differences(
    path: tuple[str, ...], old: object, new: object
) -> Iterator[tuple[tuple[str, ...], object, object]]:
    """Path and both values of each place at which two JSON values differ; None is unset."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from _differences((*path, key), old.get(key), new.get(key))
    elif old != new:
        yield path, old, new


def _shown(value: object) -> str:
    return "nothing" if value is None else show(value)
