"""Finish a run: Complete once its Job is, Failed for what no attempt would cure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.status import ConditionType, Reason
from drivetrain_operator.reconcile.attempts import ended, stopped
from drivetrain_operator.reconcile.cause import Effect, cause_of
from drivetrain_operator.reconcile.conditions import cleared, condition, normal, warning
from drivetrain_operator.reconcile.context import Transition
from drivetrain_operator.reconcile.views import JobConditionType

if TYPE_CHECKING:
    from drivetrain_operator.reconcile.cause import Cause
    from drivetrain_operator.reconcile.context import Context


def complete(context: Context) -> Transition | None:
    """Complete when the attempt's Job is: every rank exited 0."""
    job = context.job
    if job is None or job.condition(JobConditionType.COMPLETE) is None:
        return None
    missed = _threshold_missed(context)
    reason = Reason.TARGET_REACHED if _target_reached(context) else Reason.TRAINING_COMPLETE
    progress = context.status.progress
    words = f"attempt {context.status.attempt} is done"
    if progress is not None:
        words = f"{words} after {progress.env_steps} environment steps"
    if missed is not None:
        reason, words = Reason.THRESHOLD_MISSED, f"{words}; {missed}"
    done = ended(context, reason, words, exit_code=int(ExitCode.DONE), counted=False)
    done = _over(done.with_status(job_uid=job.meta.uid), reason)
    done = condition(done, ConditionType.COMPLETE, reason, words, holds=True)
    tell = normal if missed is None else warning
    return Transition(done.status, tell(reason, words))


def _threshold_missed(context: Context) -> str | None:
    """What to say where the evaluation after training missed the threshold, even continued."""
    spec, summary = context.observed.run.spec, context.status.run_summary
    if summary is None or not summary.threshold_missed:
        return None
    threshold = spec.evaluator.threshold if spec is not None else None
    wanted = "" if threshold is None else f" {threshold:g}"
    return (
        f"its last evaluation has a mean return of {summary.final_evaluated_return}, below "
        f"evaluator.threshold{wanted}"
    )


def _target_reached(context: Context) -> bool:
    """Whether the evaluator stopped the run before its planned length."""
    spec, progress = context.observed.run.spec, context.status.progress
    summary = context.status.run_summary
    if spec is None or spec.evaluator.target is None or progress is None or summary is None:
        return False
    early = progress.target_env_steps is None or progress.env_steps < progress.target_env_steps
    reached = summary.evaluated_return
    return early and reached is not None and float(reached) >= spec.evaluator.target


def fail_for_good(context: Context) -> Transition | None:
    """Failed at once where the attempt ended in a way that another one would repeat."""
    cause = cause_of(context)
    if cause is None or cause.effect is not Effect.FINAL:
        return None
    return failed(context, cause, cause.reason, cause.message)


def failed(context: Context, cause: Cause, reason: Reason, message: str) -> Transition:
    """The run is over: the record names the attempt's cause, the condition the run's."""
    if not context.ended:
        context = ended(
            context,
            cause.reason,
            cause.message,
            exit_code=cause.exit_code,
            counted=cause.effect is not Effect.DISRUPTION,
        )
    over = condition(_over(context, reason), ConditionType.FAILED, reason, message, holds=True)
    return Transition(over.status, warning(reason, message))


def _over(context: Context, reason: Reason) -> Context:
    context = stopped(context).with_status(finished_at=context.now, next_attempt_at=None)
    for type_ in (ConditionType.RESTARTING, ConditionType.SUSPENDED):
        context = cleared(context, type_, reason)
    return context
