"""Building conditions and Events: times move on transitions alone, lengths are bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_api.status import Condition, ConditionStatus, ConditionType
from drivetrain_operator.reconcile.decision import EventRecord, EventType

if TYPE_CHECKING:
    from drivetrain_api.status import Reason
    from drivetrain_operator.reconcile.context import Context

MESSAGE_LIMIT: Final = 1024
"""Characters of a condition's or an Event's message."""
_ORDER: Final = {type_: index for index, type_ in enumerate(ConditionType)}


def bounded(message: str) -> str:
    """`message` without control characters, cut where a status allows no more."""
    clean = "".join(c if c.isprintable() else " " for c in message[: 4 * MESSAGE_LIMIT]).strip()
    return clean if len(clean) <= MESSAGE_LIMIT else f"{clean[: MESSAGE_LIMIT - 3]}..."


def condition(
    context: Context, type_: ConditionType, reason: Reason, message: str = "", *, holds: bool
) -> Context:
    """The context with that condition set; its time moves only when its status does."""
    value = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    old = context.status.condition(type_)
    new = Condition(
        type=type_,
        status=value,
        reason=reason.value,
        message=bounded(message),
        last_transition_time=(
            old.last_transition_time if old is not None and old.status is value else context.now
        ),
        observed_generation=context.observed.run.metadata.generation,
    )
    others = (c for c in context.status.conditions if c.type is not type_)
    ordered = sorted((*others, new), key=lambda c: _ORDER[c.type])
    return context.with_status(conditions=tuple(ordered))


def cleared(context: Context, type_: ConditionType, reason: Reason, message: str = "") -> Context:
    """The context with that condition False where it is True; never set is left unset."""
    if not context.status.is_true(type_):
        return context
    return condition(context, type_, reason, message, holds=False)


def normal(reason: Reason, message: str) -> EventRecord:
    """An Event of the expected course."""
    return EventRecord(EventType.NORMAL, reason.value, bounded(message))


def warning(reason: Reason, message: str) -> EventRecord:
    """An Event that a person should look at."""
    return EventRecord(EventType.WARNING, reason.value, bounded(message))
