"""Hold back a status that tells of nothing but newer figures, for a while.

A trainer reports every few seconds; each report written would wake every watcher of the
run. What a person or a rule acts on (a condition, an attempt, a phase) is never held.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from drivetrain_api.status import ConditionType

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from drivetrain_api.status import TrainingRunStatus
    from drivetrain_operator.reconcile.decision import Decision

FIGURES: Final = ("done", "progress", "progressed_at", "run_summary", "artifacts")
"""Fields of the status that move with the trainer's reports alone."""


def throttle(
    written: TrainingRunStatus,
    decision: Decision,
    *,
    now: datetime,
    last: datetime | None,
    interval: timedelta,
) -> Decision:
    """The decision with its status held back where only figures differ and it is too soon.

    The first figures of a run are written at once, so are those of a decision that needs
    its status written anyway, and those that come with a change of anything else.

    Args:
        written: the status as observed.
        decision: what reconcile asks for.
        now: the current time, with an offset.
        last: when figures of this run were last written; `progressed_at` of the observed
            status where that is not known, as after a restart.
        interval: the shortest time between two such writes.
    """
    if decision.fenced or not only_figures_differ(written, decision.status):
        return decision
    if written.progress is None and decision.status.progress is not None:
        return decision
    since = last or written.progressed_at
    if since is None:
        return decision
    left = (since + interval - now).total_seconds()
    # A clock that was set back must not hold figures for ever.
    if not 0 < left <= interval.total_seconds():
        return decision
    wake = left if decision.wake_after is None else min(decision.wake_after, left)
    return replace(decision, status=written, wake_after=wake)


def only_figures_differ(old: TrainingRunStatus, new: TrainingRunStatus) -> bool:
    """Whether the two statuses differ, and in nothing but the trainer's figures."""
    return old != new and _settled(old, new) == new


def _settled(old: TrainingRunStatus, new: TrainingRunStatus) -> TrainingRunStatus:
    """The old status with the new figures, the words of Checkpointed among them."""
    figures = {name: getattr(new, name) for name in FIGURES}
    told = new.condition(ConditionType.CHECKPOINTED)
    conditions = tuple(
        condition.model_copy(update={"message": told.message})
        if told is not None and condition.type is told.type
        else condition
        for condition in old.conditions
    )
    return old.model_copy(update={**figures, "conditions": conditions})
