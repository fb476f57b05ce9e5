"""Suspend: end the attempt after its checkpoint, hold the run, go on with a new attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.status import ConditionType, Reason
from drivetrain_operator.reconcile.attempts import ended
from drivetrain_operator.reconcile.conditions import cleared, condition, normal
from drivetrain_operator.reconcile.context import Transition

if TYPE_CHECKING:
    from drivetrain_operator.reconcile.context import Context


def suspend(context: Context) -> Transition | None:
    """Suspending until nothing of any attempt is left, Suspended from then on.

    An attempt whose Job was never seen is not ended: its creation may still come through,
    and its number is used again on resumption, so that it cannot run beside a newer one.
    """
    if not context.spec.suspend or context.succeeding:
        return None
    held = context
    if not held.ended and held.status.job_uid is not None:
        held = ended(held, Reason.SUSPENDED_BY_SPEC, "suspend was set", counted=False)
    held = cleared(held, ConditionType.RESTARTING, Reason.SUSPENDED_BY_SPEC)
    if context.leftovers():
        reason, words = Reason.SUSPENDING, "waiting for the pods to checkpoint and end"
    else:
        reason, words = Reason.SUSPENDED_BY_SPEC, "suspend is set"
    old = context.status.condition(ConditionType.SUSPENDED)
    told = context.status.is_true(ConditionType.SUSPENDED) and (old and old.reason) == reason
    held = condition(held, ConditionType.SUSPENDED, reason, words, holds=True)
    return Transition(held.status, None if told else normal(reason, words))


def resume(context: Context) -> Transition | None:
    """Once suspend is false again and nothing is left, an attempt may follow."""
    if context.spec.suspend or not context.status.is_true(ConditionType.SUSPENDED):
        return None
    if context.leftovers():
        return None
    words = "suspend is no longer set"
    resumed = condition(context, ConditionType.SUSPENDED, Reason.RESUMED, words, holds=False)
    if not resumed.ended:
        resumed = resumed.with_status(attempt_started_at=context.now)
    return Transition(resumed.status, normal(Reason.RESUMED, words))
