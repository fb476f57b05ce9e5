"""MPSReady: what the attempt's launcher found out about CUDA MPS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.status import ConditionType, Reason
from drivetrain_api.trainingrun import MpsMode
from drivetrain_operator.reconcile.conditions import condition

if TYPE_CHECKING:
    from drivetrain_api.digest import MpsReport
    from drivetrain_operator.reconcile.context import Context


def mps_reported(context: Context, report: MpsReport) -> Context:
    """The context with MPSReady as reported; without it where the spec asks for no MPS.

    A report outlives its daemons: one that says "ready" counts only while the attempt runs.
    """
    spec = context.observed.run.spec
    asked = report.mode if spec is None else spec.accelerator.mps.mode
    if asked is MpsMode.DISABLED or (report.ready and context.status.attempt_running_at is None):
        return context
    reason = Reason.MPS_SERVING if report.ready else Reason.MPS_NOT_READY
    words = report.message or f"{report.mode}: {report.daemons} daemons answer"
    return condition(context, ConditionType.MPS_READY, reason, words, holds=report.ready)
