"""Reading Kubernetes-shaped dicts without trusting more of their shape than is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from drivetrain_api import labels

Object: TypeAlias = Mapping[str, Any]


def mapping(parent: Object, key: str) -> Object:
    """The mapping under `key`; empty where it is absent or null."""
    found = parent.get(key)
    return found if isinstance(found, Mapping) else {}


def items(parent: Object, key: str) -> tuple[Object, ...]:
    """The mappings in the list under `key`; empty where it is absent or null."""
    found = parent.get(key)
    if not isinstance(found, Sequence) or isinstance(found, str):
        return ()
    return tuple(item for item in found if isinstance(item, Mapping))


def text(parent: Object, key: str) -> str:
    """The string under `key`; empty where it is absent or null."""
    found = parent.get(key)
    return found if isinstance(found, str) else ""


def count(parent: Object, key: str) -> int:
    """The integer under `key`; 0 where it is absent or null, as Kubernetes omits zeros."""
    found = parent.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def optional_count(parent: Object, key: str) -> int | None:
    """The integer under `key`; None where it is absent or null."""
    found = parent.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def time(parent: Object, key: str) -> datetime | None:
    """The RFC 3339 time under `key`, in UTC; None where it is absent."""
    found = parent.get(key)
    if isinstance(found, str):
        found = datetime.fromisoformat(found)
    if not isinstance(found, datetime):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def decimal(value: str) -> int | None:
    """A label's decimal from 1; None where it is anything else."""
    return int(value) if value.isascii() and value.isdigit() and 0 < len(value) < 10 else None  # noqa: PLR2004 - int32's digits


@dataclass(frozen=True)
class Meta:
    """The part of a child's metadata that decisions rest on."""

    name: str
    uid: str
    run_uid: str
    """The label `drivetrain.dev/run-uid`; anybody may write a label, so never proof alone."""
    attempt: int | None
    """The label `drivetrain.dev/attempt`; None where it is absent or no decimal."""
    controller_kind: str
    """Kind of the controlling owner; empty without one."""
    controller_name: str
    controller_uid: str
    created_at: datetime | None
    deletion_at: datetime | None
    """Kubernetes' deletionTimestamp: when the grace period ends, not when it began."""
    deletion_grace_seconds: int | None
    finalizers: tuple[str, ...]

    @classmethod
    def from_object(cls, obj: Object) -> Meta:
        """Read `metadata` of a Kubernetes object."""
        meta = mapping(obj, "metadata")
        marks = mapping(meta, "labels")
        controller: Object = next(
            (o for o in items(meta, "ownerReferences") if o.get("controller") is True), {}
        )
        finalizers = meta.get("finalizers")
        return cls(
            name=text(meta, "name"),
            uid=text(meta, "uid"),
            run_uid=text(marks, labels.RUN_UID),
            attempt=decimal(text(marks, labels.ATTEMPT)),
            controller_kind=text(controller, "kind"),
            controller_name=text(controller, "name"),
            controller_uid=text(controller, "uid"),
            created_at=time(meta, "creationTimestamp"),
            deletion_at=time(meta, "deletionTimestamp"),
            deletion_grace_seconds=optional_count(meta, "deletionGracePeriodSeconds"),
            finalizers=tuple(finalizers) if isinstance(finalizers, list) else (),
        )
