from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drivetrain_api.status import (
    AttemptRecord,
    Condition,
    ConditionStatus,
    ConditionType,
    Phase,
    TrainingRunStatus,
)
from drivetrain_operator.kubectl.timeline import forgotten, next_words, timeline

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: int) -> datetime:
    return NOW - timedelta(seconds=seconds)


def record(attempt: int, **fields: Any) -> AttemptRecord:
    known: dict[str, Any] = {"reason": "OOMKilled", "ended_at": at(100), "started_at": at(3_700)}
    return AttemptRecord(attempt=attempt, **(known | fields))


def told(type_: ConditionType, reason: str, *, holds: bool) -> Condition:
    value = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    return Condition(type=type_, status=value, reason=reason, last_transition_time=NOW)


def test_an_ended_attempt_tells_when_how_long_why_and_whether_it_counts() -> None:
    status = TrainingRunStatus(
        attempt=1, history=(record(1, exit_code=137, message="pod x: OOMKilled"),)
    )
    (entry,) = timeline(status)
    assert entry.cells(NOW) == (
        "1",
        "1h1m ago",
        "1h",
        "OOMKilled",
        "137",
        "yes",
        "pod x: OOMKilled",
    )


def test_a_record_of_an_operator_that_did_not_write_the_beginning_yet() -> None:
    (entry,) = timeline(TrainingRunStatus(attempt=1, history=(record(1, started_at=None),)))
    assert entry.cells(NOW)[1:3] == ("-", "-")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"attempt_running_at": at(10)}, "Running"),
        (
            {"conditions": (told(ConditionType.SCHEDULED, "Unschedulable", holds=False),)},
            "Unschedulable",
        ),
        (
            {
                "conditions": (
                    told(ConditionType.SCHEDULED, "PodsScheduled", holds=True),
                    told(ConditionType.RUNNING, "ImagePullFailed", holds=False),
                )
            },
            "ImagePullFailed",
        ),
        ({"phase": Phase.PENDING}, "Pending"),
    ],
)
def test_the_living_attempt_comes_last_with_what_it_waits_for(
    fields: dict[str, Any], reason: str
) -> None:
    status = TrainingRunStatus(
        attempt=2, attempt_started_at=at(90), history=(record(1),), message="words", **fields
    )
    first, last = timeline(status)
    assert (first.attempt, last.attempt) == (1, 2)
    assert last.cells(NOW) == ("2", "1m30s ago", "1m30s", reason, "-", "", "words")


def test_attempts_that_the_status_forgot_are_counted() -> None:
    status = TrainingRunStatus(attempt=14, history=tuple(record(n) for n in range(4, 14)))
    assert forgotten(status) == 3
    assert forgotten(TrainingRunStatus()) == 0


@pytest.mark.parametrize(
    ("left", "words"),
    [(90, "attempt 3 follows in 1m30s"), (-1, "attempt 3 follows once the last pods are gone")],
)
def test_the_next_attempt_is_announced(left: int, words: str) -> None:
    status = TrainingRunStatus(
        attempt=2, phase=Phase.RESTARTING, next_attempt_at=NOW + timedelta(seconds=left)
    )
    assert next_words(status, NOW) == words
    assert not next_words(status.model_copy(update={"phase": Phase.SUSPENDED}), NOW)
