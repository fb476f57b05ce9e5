"""Stall: a run whose figures stand still has failed, whatever its processes say."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from drivetrain_api.status import ConditionType, Reason
from drivetrain_operator.reconcile.cause import Cause, Effect
from drivetrain_operator.reconcile.conditions import condition
from drivetrain_operator.reconcile.restart import after

if TYPE_CHECKING:
    from drivetrain_operator.reconcile.context import Context, Transition


def stalls_at(context: Context) -> datetime | None:
    """When a running attempt without new figures is taken for hung.

    The operator's own clock decides: a trainer's may be off, and its first figures are
    awaited from the moment it runs.
    """
    since = context.status.attempt_running_at
    if context.wanted is None or since is None or context.succeeding:
        return None
    since = max(since, context.status.progressed_at or since)
    return since + timedelta(seconds=context.spec.restart.stall_seconds)


def stall(context: Context) -> Transition | None:
    """A counted failure after `restart.stallSeconds` without progress."""
    moment = stalls_at(context)
    if moment is None or moment > context.now:
        return None
    words = f"no progress for {context.spec.restart.stall_seconds} s"
    if context.status.progress is not None:
        words = f"{words} at {context.status.progress.env_steps} environment steps"
    hung = condition(context, ConditionType.STALLED, Reason.NO_PROGRESS, words, holds=True)
    return after(hung, Cause(Effect.COUNTED, Reason.STALLED, words))
