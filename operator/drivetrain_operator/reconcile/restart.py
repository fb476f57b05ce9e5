"""Restart a failed attempt as a whole, later each time, while maxRestarts allows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from drivetrain_api.status import ConditionType, Reason
from drivetrain_operator.reconcile.attempts import ended
from drivetrain_operator.reconcile.cause import Effect, cause_of
from drivetrain_operator.reconcile.conditions import condition, warning
from drivetrain_operator.reconcile.context import Transition
from drivetrain_operator.reconcile.finish import failed

if TYPE_CHECKING:
    from datetime import datetime

    from drivetrain_operator.reconcile.cause import Cause
    from drivetrain_operator.reconcile.context import Context

BACKOFF_LIMIT: Final = 600
"""Seconds; the longest wait before an attempt."""


def backoff_seconds(first: int, ended_attempts: int) -> int:
    """Wait after the n-th ended attempt: doubled each time, at most `BACKOFF_LIMIT`."""
    doublings = min(max(ended_attempts - 1, 0), BACKOFF_LIMIT.bit_length())
    return min(first << doublings, BACKOFF_LIMIT)


def restart_failed(context: Context) -> Transition | None:
    """A counted failure: the next attempt after the back-off, or the end of the run."""
    cause = cause_of(context)
    return after(context, cause) if cause is not None and cause.effect is Effect.COUNTED else None


def after(context: Context, cause: Cause) -> Transition:
    """What follows an attempt that ended for a cause that another attempt may escape."""
    status, limit = context.status, context.spec.restart.max_restarts
    counted = cause.effect is not Effect.DISRUPTION
    if counted and status.restarts >= limit:
        words = f"{cause.reason}: {cause.message} (after {status.restarts} of {limit} restarts)"
        return failed(context, cause, Reason.RESTARTS_EXHAUSTED, words)
    over = ended(
        context, cause.reason, cause.message, exit_code=cause.exit_code, counted=counted
    ).with_status(
        restarts=status.restarts + counted,
        disruptions=status.disruptions + (not counted),
    )
    wait = backoff_seconds(
        context.spec.restart.backoff_seconds, over.status.restarts + over.status.disruptions
    )
    over = over.with_status(next_attempt_at=context.now + timedelta(seconds=wait))
    words = f"{cause.reason}: {cause.message}"
    over = condition(
        over,
        ConditionType.RESTARTING,
        Reason.BACKING_OFF,
        f"attempt {status.attempt} ended, the next follows after {wait} s: {words}",
        holds=True,
    )
    return Transition(over.status, warning(cause.reason, f"attempt {status.attempt}: {words}"))


def backoff_ends(context: Context) -> datetime | None:
    """When the next attempt may begin."""
    return None if context.terminal else context.status.next_attempt_at
