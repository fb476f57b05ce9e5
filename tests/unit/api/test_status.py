from __future__ import annotations

from datetime import UTC, datetime

import pytest

from drivetrain_api.status import (
    Condition,
    ConditionStatus,
    ConditionType,
    Phase,
    Progress,
    TrainingRunStatus,
    done_of,
    message_of,
    phase_of,
)

AT = datetime(2026, 3, 1, tzinfo=UTC)
NOT = {True: ConditionStatus.TRUE, False: ConditionStatus.FALSE}


def status(**conditions: bool) -> TrainingRunStatus:
    """A status whose conditions each say their own type."""
    types = {type_.name.lower(): type_ for type_ in ConditionType}
    return TrainingRunStatus(
        conditions=tuple(
            Condition(
                type=types[name],
                status=NOT[holds],
                reason="Because",
                message=f"{name} is {holds}",
                last_transition_time=AT,
            )
            for name, holds in conditions.items()
        )
    )


@pytest.mark.parametrize(
    ("conditions", "phase", "message"),
    [
        ({}, Phase.PENDING, None),
        ({"accepted": True}, Phase.PENDING, None),
        ({"accepted": False, "scheduled": False}, Phase.PENDING, "accepted is False"),
        ({"accepted": True, "scheduled": False}, Phase.PENDING, "scheduled is False"),
        ({"scheduled": True, "running": False}, Phase.PENDING, "running is False"),
        ({"scheduled": True, "running": True}, Phase.RUNNING, "running is True"),
        ({"running": False, "restarting": True}, Phase.RESTARTING, "restarting is True"),
        ({"running": False, "suspended": True}, Phase.SUSPENDED, "suspended is True"),
        ({"running": False, "failed": True}, Phase.FAILED, "failed is True"),
        ({"running": False, "complete": True}, Phase.COMPLETE, "complete is True"),
    ],
)
def test_the_message_is_that_of_the_condition_which_decides_the_phase(
    conditions: dict[str, bool], phase: Phase, message: str | None
) -> None:
    found = status(**conditions)
    assert (phase_of(found), message_of(found)) == (phase, message)


@pytest.mark.parametrize(
    ("progress", "done"),
    [
        (None, None),
        (Progress(), None),
        (Progress(percent=0, iteration=7), "0%"),
        (Progress(percent=42), "42%"),
        (Progress(iteration=350), "350 it"),
    ],
)
def test_progress_in_a_table_is_a_percentage_or_iterations(
    progress: Progress | None, done: str | None
) -> None:
    assert done_of(progress) == done
