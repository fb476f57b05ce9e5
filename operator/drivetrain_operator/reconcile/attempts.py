"""Ending an attempt: its record, its active time, and what only a live attempt has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_api.status import AttemptRecord, ConditionType, Reason
from drivetrain_operator.reconcile.conditions import bounded, cleared

if TYPE_CHECKING:
    from drivetrain_operator.reconcile.context import Context

HISTORY_LIMIT: Final = 10
"""Ended attempts that a status keeps."""


def active_seconds(context: Context) -> int:
    """Whole seconds that the run's attempts ran so far, the current one included."""
    since = context.status.attempt_running_at
    current = int((context.now - since).total_seconds()) if since is not None else 0
    return context.status.active_seconds + max(current, 0)


def stopped(context: Context, reason: Reason = Reason.PODS_STOPPED, message: str = "") -> Context:
    """The context with the running segment closed: its time is added up."""
    total = active_seconds(context)
    context = context.with_status(active_seconds=total, attempt_running_at=None)
    context = cleared(context, ConditionType.MPS_READY, reason)
    return cleared(context, ConditionType.RUNNING, reason, message)


def ended(
    context: Context,
    reason: Reason,
    message: str = "",
    *,
    exit_code: int | None = None,
    counted: bool,
) -> Context:
    """The context with the status' attempt recorded as over."""
    record = AttemptRecord(
        attempt=context.status.attempt,
        started_at=context.status.attempt_started_at,
        reason=reason.value,
        message=bounded(message),
        exit_code=exit_code,
        counted=counted,
        ended_at=context.now,
    )
    earlier = (r for r in context.status.history if r.attempt != record.attempt)
    history = (*earlier, record)[-HISTORY_LIMIT:]
    over = cleared(stopped(context), ConditionType.SCHEDULED, Reason.PODS_STOPPED)
    return over.with_status(history=history)
