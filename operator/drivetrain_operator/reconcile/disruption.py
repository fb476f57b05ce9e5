"""Restart after a disruption: the cluster's doing, so it does not count, but it backs off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_operator.reconcile.cause import Effect, cause_of
from drivetrain_operator.reconcile.restart import after

if TYPE_CHECKING:
    from drivetrain_operator.reconcile.context import Context, Transition


def restart_disrupted(context: Context) -> Transition | None:
    """Eviction, preemption, drain, taint or a lost node ended the attempt."""
    cause = cause_of(context)
    if cause is None or cause.effect is not Effect.DISRUPTION:
        return None
    return after(context, cause)
