"""What a member's status gives as the reason of its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_api.status import ConditionType, Reason

if TYPE_CHECKING:
    from drivetrain_api.status import TrainingRunStatus


def reason_of(status: TrainingRunStatus, state: MemberState) -> str | None:
    """Why a member failed, or what is wrong with one that is complete.

    A member whose last evaluation is below ``evaluator.threshold``, even after a continuation,
    is complete: it has trained as long as it was to.
    """
    if state is MemberState.FAILED:
        return status.message
    complete = status.condition(ConditionType.COMPLETE)
    if state is not MemberState.COMPLETE or complete is None:
        return None
    if complete.reason != Reason.THRESHOLD_MISSED:
        return None
    return f"{complete.reason}: {complete.message}"
