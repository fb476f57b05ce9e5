"""What the API server itself refuses: validation rules (CEL) of the TrainingRun resource.

Rules walk nothing unbounded, so that the server's cost estimate stays low. Immutability of
an optional field stands on its parent, because a transition rule on a field that was added
or removed would never run. A field that is null counts as unset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from drivetrain_api.algorithms import AVAILABLE_ALGORITHMS, AlgoName
from drivetrain_api.soak import UNSOAKABLE

MAX_NAME: Final = 50
"""Characters of a run's name."""


@dataclass(frozen=True)
class Rule:
    """A rule on the object at one place of the schema."""

    rule: str
    message: str
    field_path: str | None = None
    """JSON path, relative to the object, of the field that the refusal names."""

    def to_wire(self) -> dict[str, Any]:
        """As it stands in ``x-kubernetes-validations``."""
        wire = {"rule": self.rule, "message": self.message}
        if self.field_path is not None:
            wire["fieldPath"] = self.field_path
        return wire


_REQUIRED: Final = frozenset({"algo", "task"})
_NULLABLE: Final = frozenset({"experiment"})
IMMUTABLE: Final = (
    "algo",
    "task",
    "sim",
    "seed",
    "topology",
    "accelerator",
    "storage",
    "experiment",
)
"""Fields of the spec that decide what is trained and where its files are."""


def _present(holder: str, name: str) -> str:
    there = f"has({holder}.{name})"
    return f"({there} && dyn({holder}.{name}) != null)" if name in _NULLABLE else there


def _immutable(name: str) -> Rule:
    unchanged = f"self.{name} == oldSelf.{name}"
    if name not in _REQUIRED:
        now, before = _present("self", name), _present("oldSelf", name)
        unchanged = f"{now} == {before} && (!{now} || {unchanged})"
    return Rule(unchanged, f"{name} is immutable: create another TrainingRun", f".{name}")


def _resume_from(holder: str) -> str:
    return (
        f"(has({holder}.checkpoint) && has({holder}.checkpoint.resumeFrom) ? "
        f"dyn({holder}.checkpoint.resumeFrom) : dyn(null))"
    )


def _at_most_one(*names: str) -> str:
    chosen = ", ".join(f"has(self.{name}) && dyn(self.{name}) != null" for name in names)
    return f"[{chosen}].filter(chosen, chosen).size() <= 1"


def _not_soaked(algo: AlgoName) -> Rule:
    return Rule(
        f"!has(self.soak) || dyn(self.soak) == null || self.algo.name != '{algo}'",
        f"{algo} cannot be soaked: it writes no runtime manifest, which the verdict rests on",
        ".soak",
    )


RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "": (
        Rule(
            f"size(self.metadata.name) <= {MAX_NAME}",
            f"metadata.name must be at most {MAX_NAME} characters, so that the names of an "
            "attempt's pods fit a DNS label",
        ),
    ),
    "spec": (
        *(_immutable(name) for name in IMMUTABLE),
        Rule(
            f"{_resume_from('self')} == {_resume_from('oldSelf')}",
            "checkpoint.resumeFrom is immutable: create another TrainingRun",
            ".checkpoint.resumeFrom",
        ),
        # An algorithm that is not of this release is refused by its name alone.
        *(_not_soaked(name) for name in sorted(UNSOAKABLE & AVAILABLE_ALGORITHMS)),
    ),
    "spec.training": (
        Rule(
            _at_most_one("totalEnvSteps", "iterations"),
            "totalEnvSteps and iterations contradict each other: set one of the two",
            ".iterations",
        ),
    ),
    "spec.storage": (
        Rule(
            "[has(self.claimName) && dyn(self.claimName) != null, "
            "has(self.size) && dyn(self.size) != null, "
            "has(self.emptyDir) && dyn(self.emptyDir) == true]"
            ".filter(chosen, chosen).size() <= 1",
            "claimName, size and emptyDir contradict each other: set one of them",
        ),
        Rule(
            "!has(self.storageClassName) || dyn(self.storageClassName) == null || "
            "has(self.size) && dyn(self.size) != null",
            "storageClassName needs size: it is the class of a claim made for this run",
            ".storageClassName",
        ),
    ),
}
"""camelCase path of the object -> its rules."""
