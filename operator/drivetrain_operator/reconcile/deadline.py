"""Deadlines: an attempt that never gets to run, a run that runs for too long."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from drivetrain_api.status import Reason
from drivetrain_operator.reconcile.attempts import active_seconds
from drivetrain_operator.reconcile.cause import Cause, Effect
from drivetrain_operator.reconcile.explain import obstacle
from drivetrain_operator.reconcile.finish import failed

if TYPE_CHECKING:
    from drivetrain_operator.reconcile.context import Context, Transition


def pending_ends(context: Context) -> datetime | None:
    """When an attempt that is not running yet has waited too long.

    Waiting in a queue does not count: a Job that Kueue holds has no deadline, and one that
    it let go starts anew.
    """
    limit, since = context.spec.deadlines.pending_seconds, context.status.attempt_started_at
    if limit is None or since is None or context.wanted is None or context.succeeding:
        return None
    if context.status.attempt_running_at is not None:
        return None
    job = context.job
    if job is not None:
        if job.held or (context.spec.queue_name is not None and job.started_at is None):
            return None
        since = max(since, job.started_at or since)
    return since + timedelta(seconds=limit)


def pending_deadline(context: Context) -> Transition | None:
    """Failed, with the real reason: the scheduler's, the kubelet's or the quota's words."""
    moment = pending_ends(context)
    if moment is None or moment > context.now:
        return None
    limit = context.spec.deadlines.pending_seconds
    found = obstacle(context)
    why = found.message if found is not None else "nothing is known to hinder it"
    words = f"attempt {context.status.attempt} is not running after {limit} s: {why}"
    cause = Cause(Effect.FINAL, Reason.PENDING_DEADLINE, words)
    return failed(context, cause, Reason.PENDING_DEADLINE, words)


def active_ends(context: Context) -> datetime | None:
    """When the run's attempts have run for too long in total."""
    limit, since = context.spec.deadlines.active_seconds, context.status.attempt_running_at
    if limit is None or since is None or context.succeeding:
        return None
    return since + timedelta(seconds=max(limit - context.status.active_seconds, 0))


def active_deadline(context: Context) -> Transition | None:
    """Failed, after a checkpoint, once the total is reached; between two attempts as well."""
    limit = context.spec.deadlines.active_seconds
    if limit is None or context.succeeding or context.status.attempt == 0:
        return None
    total = active_seconds(context)
    if total < limit:
        return None
    words = f"the run was active for {total} s of {limit} s allowed"
    cause = Cause(Effect.FINAL, Reason.ACTIVE_DEADLINE, words)
    return failed(context, cause, Reason.ACTIVE_DEADLINE, words)
