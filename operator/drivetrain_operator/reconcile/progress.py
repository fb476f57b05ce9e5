"""Copy what the attempt reports of itself: validated, bounded, never from an older attempt."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from drivetrain_api.status import ConditionType, Progress, Reason
from drivetrain_operator.reconcile.conditions import cleared, condition, normal
from drivetrain_operator.reconcile.context import Transition
from drivetrain_operator.reconcile.explain import attempt_digest
from drivetrain_operator.reconcile.mps import mps_reported

if TYPE_CHECKING:
    from drivetrain_api.status import SoakDigest
    from drivetrain_operator.reconcile.context import Context


def report(context: Context) -> Transition | None:
    """Progress, run_summary, soak, artifacts and Checkpointed follow the newest digest."""
    if context.status.attempt == 0:
        return None
    digest = attempt_digest(context)
    if digest is None:
        return None
    followed = context
    if digest.progress is not None:
        followed = _figures(followed, digest.progress)
    if digest.run_summary is not None:
        followed = followed.with_status(run_summary=digest.run_summary)
    if digest.soak is not None:
        followed = _judged(followed, digest.soak)
    if digest.artifacts:
        followed = followed.with_status(artifacts=digest.artifacts)
    if digest.mps is not None:
        followed = mps_reported(followed, digest.mps)
    first = not context.status.is_true(ConditionType.CHECKPOINTED) and followed.status.is_true(
        ConditionType.CHECKPOINTED
    )
    event = normal(Reason.CHECKPOINT_WRITTEN, "a first checkpoint is complete") if first else None
    return Transition(followed.status, event)


def _figures(context: Context, reported: Progress) -> Context:
    """The context with these figures, where one of them is new.

    A report whose time alone differs says nothing: a hung learner may still send it.
    """
    old = context.status.progress
    new = reported.model_copy(update={"at": _in_utc(reported.at)})
    if old is not None and old.model_copy(update={"at": new.at}) == new:
        return context
    moved = old is None or (old.iteration, old.env_steps) != (new.iteration, new.env_steps)
    context = context.with_status(progress=new)
    if moved:
        context = context.with_status(progressed_at=context.now)
        if not context.ended:
            context = cleared(context, ConditionType.STALLED, Reason.PROGRESSING)
    if new.checkpoint_env_steps is None:
        return context
    words = f"newest checkpoint at {new.checkpoint_env_steps} environment steps"
    return condition(
        context, ConditionType.CHECKPOINTED, Reason.CHECKPOINT_WRITTEN, words, holds=True
    )


def _judged(context: Context, verdict: SoakDigest) -> Context:
    """The context with a soak's verdict, where a soak was asked for and it is this attempt's."""
    spec = context.observed.run.spec
    if spec is None or spec.soak is None or verdict.attempt != context.status.attempt:
        return context
    return context.with_status(soak=verdict)


def _in_utc(at: datetime | None) -> datetime | None:
    """The trainer's time in UTC; None for one without an offset, or beyond the calendar."""
    if at is None or at.tzinfo is None:
        return None
    try:
        return at.astimezone(UTC)
    except OverflowError:
        return None
