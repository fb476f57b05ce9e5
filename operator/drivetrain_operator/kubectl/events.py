"""Kubernetes Events in order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from drivetrain_operator.reconcile.fields import count, mapping, text, time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drivetrain_operator.reconcile.fields import Object

_NEVER: Final = datetime.min.replace(tzinfo=UTC)


def in_order(events: Iterable[Object]) -> tuple[Object, ...]:
    """Oldest first."""
    return tuple(
        sorted(events, key=lambda event: (last_seen(event) or _NEVER, text(event, "reason")))
    )


def last_seen(event: Object) -> datetime | None:
    """When it was last seen."""
    return (
        time(mapping(event, "series"), "lastObservedTime")
        or time(event, "lastTimestamp")
        or time(event, "eventTime")
        or time(event, "firstTimestamp")
    )


def times_seen(event: Object) -> int:
    """How often it was seen."""
    return count(mapping(event, "series"), "count") or count(event, "count") or 1
