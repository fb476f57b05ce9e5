"""Which of two states of an object is the newer one, and what was deleted since."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from drivetrain_operator.reconcile.fields import mapping, text

if TYPE_CHECKING:
    from drivetrain_operator.cluster.resources import Resource
    from drivetrain_operator.reconcile.fields import Object

ObjectName: TypeAlias = tuple[str, str]
"""Namespace and name of an object."""
TOMBSTONES: Final = 4096
"""Deleted objects that are remembered, so that a list from before does not revive them."""
_DIGITS: Final = 20
"""Of an unsigned number of 64 bits."""


def name_of(obj: Object) -> ObjectName:
    """Namespace and name; empty where the object does not tell."""
    metadata = mapping(obj, "metadata")
    return text(metadata, "namespace"), text(metadata, "name")


def version_of(obj: Object) -> int:
    """The object's resourceVersion as a number."""
    return number(text(mapping(obj, "metadata"), "resourceVersion"))


def number(version: str) -> int:
    """A resourceVersion as a number; 0 for one that is none, which is never old."""
    numeric = version.isascii() and version.isdigit() and len(version) <= _DIGITS
    return int(version) if numeric else 0


@dataclass(slots=True)
class Tombstones:
    """When objects were deleted, the newest `TOMBSTONES` of each resource.

    With a run go several of each: apart, these do not push its own tombstone out.
    """

    found: dict[Resource, OrderedDict[ObjectName, int]] = field(default_factory=dict)

    def add(self, resource: Resource, name: ObjectName, version: int) -> None:
        """The object was deleted at that version; 0 where that is not known."""
        names = self.found.setdefault(resource, OrderedDict())
        names[name] = max(version, names.pop(name, 0))
        if len(names) > TOMBSTONES:
            names.popitem(last=False)

    def buried(self, resource: Resource, name: ObjectName, version: int) -> bool:
        """Whether the object was deleted after that version."""
        names = self.found.get(resource)
        return names is not None and 0 < version <= names.get(name, 0)
