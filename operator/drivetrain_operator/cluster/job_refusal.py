"""The API server's refusal of a Job in terms of the run's spec.

The server speaks of the merged template. A path of it is led back to where the value
stands in `podTemplate`, whose lists may have other indices, or to the field of the spec
that our builders made the value from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_api.errors import Violation
from drivetrain_operator.cluster.errors import InvalidError
from drivetrain_operator.manifests.names import TRAINER_CONTAINER
from drivetrain_operator.manifests.overlay import LIST_KEYS
from drivetrain_operator.manifests.overlay_rules import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivetrain_api.trainingrun import TrainingRunSpec
    from drivetrain_operator.cluster.errors import ApiError
    from drivetrain_operator.manifests.kinds import Manifest

_UNREADABLE: Final = "cannot be handled as a Job: "
_STRICT: Final = re.compile(r'(?P<words>(?:unknown|duplicate) field) "(?P<path>[^"]*)"')
_WRONG_TYPE: Final = re.compile(
    r"cannot unmarshal (?P<found>\S+) into Go struct field \w+\.(?P<path>\S+)"
    r" of type (?P<wanted>\S+)"
)
_STEP: Final = re.compile(r"\[(?P<key>[^\]]*)\]|(?P<name>[^.\[\]]+)")
_TEMPLATE: Final = "spec.template."


def refusals_of(error: ApiError, job: Manifest, spec: TrainingRunSpec) -> tuple[Violation, ...]:
    """The violations of the spec that an error tells; empty where it tells of something else.

    An admission policy answers Invalid as well, but names no field.

    Args:
        error: The answer to the Job.
        job: The Job that was sent.
        spec: What it was built from.
    """
    if isinstance(error, InvalidError):
        told = [(cause.field, cause.message) for cause in error.causes if cause.field]
    else:
        told = list(_unreadable(error.message))
    return tuple(dict.fromkeys(_violation(field, words, job, spec) for field, words in told))


def _violation(field: str, words: str, job: Manifest, spec: TrainingRunSpec) -> Violation:
    path = _path(field, job, spec)
    return Violation(path, words if path else f"the Job's {field}: {words}")


def _unreadable(message: str) -> Iterator[tuple[str, str]]:
    """Paths and words of an answer to an object that cannot even be decoded."""
    _, found, words = message.partition(_UNREADABLE)
    if not found:
        return
    strict = list(_STRICT.finditer(words))
    for match in strict:
        yield match["path"], match["words"]
    wrong = _WRONG_TYPE.search(words)
    if wrong is not None:
        yield wrong["path"], f"must be of type {wrong['wanted']}; got {wrong['found']}"
    elif not strict:
        yield _TEMPLATE, words


def _path(field: str, job: Manifest, spec: TrainingRunSpec) -> str:
    """Where in the spec the value stands; empty for what no field of it can have caused."""
    if field.startswith("metadata.labels") and spec.queue_name is not None:
        return "queue_name"
    if not field.startswith(_TEMPLATE):
        return ""
    steps = [match["key"] or match["name"] for match in _STEP.finditer(field[len(_TEMPLATE) :])]
    template = job["spec"]["template"]
    place = _Place(template, spec.pod_template, ROOT, theirs=spec.pod_template is not None)
    for step in steps:
        place = place.below(step)
    if place.theirs:
        return place.path
    return _source(steps, template, spec) or (place.path if spec.pod_template is not None else "")


@dataclass(frozen=True)
class _Place:
    """A place in the merged template, and the same one in the overlay."""

    merged: object
    overlay: object
    path: str
    """In the overlay, where it is there."""
    theirs: bool
    """Whether what stands here, or is missing here, is the overlay's doing."""
    key: str = ""

    def below(self, step: str) -> _Place:
        """One step further down: a key, or an index of the merged list."""
        if isinstance(self.merged, list) and step.isdigit():
            return self._item(int(step))
        merged, overlay = _get(self.merged, step), _get(self.overlay, step)
        missing = merged is None and self.theirs
        return _Place(merged, overlay, f"{self.path}.{step}", overlay is not None or missing, step)

    def _item(self, index: int) -> _Place:
        assert isinstance(self.merged, list)
        item = self.merged[index] if index < len(self.merged) else None
        ours = list(enumerate(self.overlay)) if isinstance(self.overlay, list) else []
        keys = LIST_KEYS.get(self.key)
        for place, candidate in ours:
            same = place == index if keys is None else _same(candidate, item, keys)
            if same:
                return _Place(item, candidate, f"{self.path}[{place}]", theirs=True)
        return _Place(item, None, f"{self.path}[{index}]", theirs=False)


def _get(parent: object, key: str) -> object:
    return parent.get(key) if isinstance(parent, Mapping) else None


def _same(one: object, other: object, keys: tuple[str, ...]) -> bool:
    return all(_get(one, key) == _get(other, key) for key in keys)


def _source(steps: list[str], template: Manifest, spec: TrainingRunSpec) -> str | None:
    """The field of the spec from which our builders made the value."""
    match steps:
        case ["spec", "schedulerName"]:
            return "scheduler_name"
        case ["spec", "containers", index, "image"] if _name(template, "containers", index) == (
            TRAINER_CONTAINER
        ):
            return "image"
        case ["spec", "containers", _, "resources", _, name] if (
            name == spec.accelerator.resource_name
        ):
            return "accelerator.resource_name"
        case ["spec", "volumes", index, *_] if _name(template, "volumes", index) == "storage":
            return "storage"
    return None


def _name(template: Manifest, key: str, index: str) -> object:
    items = template["spec"].get(key, [])
    inside = index.isdigit() and int(index) < len(items)
    return _get(items[int(index)], "name") if inside else None
