from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_api.status import (
    Artifact,
    Condition,
    ConditionStatus,
    ConditionType,
    Phase,
    Progress,
    RunSummaryDigest,
    TrainingRunStatus,
)
from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.reconcile.decision import Create, Decision, DeletePod
from drivetrain_operator.reconcile.throttle import only_figures_differ, throttle

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
INTERVAL = timedelta(seconds=10)
MILLISECONDS = st.integers(500, 100_000).map(lambda n: n / 1000)


def condition(type_: ConditionType, message: str = "", *, holds: bool = True) -> Condition:
    return Condition(
        type=type_,
        status=ConditionStatus.TRUE if holds else ConditionStatus.FALSE,
        reason="Because",
        message=message,
        last_transition_time=NOW - timedelta(minutes=5),
    )


WRITTEN = TrainingRunStatus(
    phase=Phase.RUNNING,
    attempt=1,
    conditions=(
        condition(ConditionType.RUNNING),
        condition(ConditionType.CHECKPOINTED, "newest checkpoint at 50 environment steps"),
    ),
    progress=Progress(iteration=1, env_steps=100),
    progressed_at=NOW - timedelta(seconds=4),
)
NEWER: dict[str, Any] = {
    "progress": Progress(iteration=2, env_steps=200),
    "progressed_at": NOW,
    "done": "20%",
}


def changed(**fields: Any) -> TrainingRunStatus:
    return WRITTEN.model_copy(update=fields)


def held(decision: Decision, **options: Any) -> bool:
    return throttled(decision, **options).status == WRITTEN


def throttled(decision: Decision, **options: Any) -> Decision:
    known: dict[str, Any] = {"now": NOW, "last": None, "interval": INTERVAL} | options
    return throttle(WRITTEN, decision, **known)


def test_newer_figures_wait_for_the_interval_since_the_last_ones() -> None:
    decision = throttled(Decision(changed(**NEWER)))
    assert decision.status == WRITTEN
    assert decision.wake_after == 6.0


def test_what_the_writer_remembers_goes_before_what_the_status_says() -> None:
    decision = Decision(changed(**NEWER))
    assert throttled(decision, last=NOW - timedelta(seconds=1)).wake_after == 9.0
    assert not held(decision, last=NOW - timedelta(seconds=10))


def test_an_earlier_wake_up_is_kept() -> None:
    assert throttled(Decision(changed(**NEWER), wake_after=2.5)).wake_after == 2.5
    assert throttled(Decision(changed(**NEWER), wake_after=60.0)).wake_after == 6.0


FIGURES = [
    NEWER,
    {"progress": Progress(iteration=1, env_steps=100, mean_reward="3.5")},
    {"run_summary": RunSummaryDigest(status="running", total_env_steps=200)},
    {"artifacts": (Artifact(name="last_checkpoint", uri="logs/a", bytes=3),)},
    {
        **NEWER,
        "conditions": (
            condition(ConditionType.RUNNING),
            condition(ConditionType.CHECKPOINTED, "newest checkpoint at 150 environment steps"),
        ),
    },
]


@pytest.mark.parametrize("fields", FIGURES)
def test_figures_alone_are_held(fields: dict[str, Any]) -> None:
    assert only_figures_differ(WRITTEN, changed(**fields))
    assert held(Decision(changed(**fields)))


OTHERS = [
    {"phase": Phase.COMPLETE},
    {"restarts": 1},
    {"observed_generation": 2},
    {"disruption_seen": True},
    {"conditions": (condition(ConditionType.RUNNING),)},
    {"conditions": (condition(ConditionType.RUNNING, "3 of 4"), WRITTEN.conditions[1])},
    {"conditions": (condition(ConditionType.RUNNING, holds=False), WRITTEN.conditions[1])},
    {"conditions": (*WRITTEN.conditions, condition(ConditionType.STALLED))},
]


@pytest.mark.parametrize("fields", OTHERS)
def test_anything_else_is_written_at_once_and_takes_the_figures_along(
    fields: dict[str, Any],
) -> None:
    decision = Decision(changed(**NEWER, **fields), wake_after=1.0)
    assert not only_figures_differ(WRITTEN, decision.status)
    assert throttled(decision) is decision


def test_a_status_that_must_prove_its_snapshot_is_never_held() -> None:
    create = Create(ChildKind.JOB, "walk-a2", {})
    decision = Decision(changed(**NEWER), (create,))
    assert throttled(decision) is decision


def test_actions_are_kept_while_the_figures_wait() -> None:
    delete = DeletePod("walk-a1-0", "uid", 0)
    decision = throttled(Decision(changed(**NEWER), (delete,)))
    assert (decision.status, decision.actions) == (WRITTEN, (delete,))


def test_the_first_figures_are_written_at_once() -> None:
    bare = WRITTEN.model_copy(update={"progress": None})
    decision = Decision(changed(**NEWER))
    assert throttle(bare, decision, now=NOW, last=NOW, interval=INTERVAL) is decision


def test_nothing_to_write_stays_nothing_to_write() -> None:
    decision = Decision(WRITTEN, wake_after=30.0)
    assert throttled(decision) is decision


def test_a_clock_that_was_set_back_holds_nothing() -> None:
    assert not held(Decision(changed(**NEWER)), last=NOW + timedelta(hours=1))


@given(MILLISECONDS, MILLISECONDS, MILLISECONDS | st.none())
def test_what_is_held_comes_within_the_interval(
    age: float, interval: float, wake: float | None
) -> None:
    decision = Decision(changed(**NEWER), wake_after=wake)
    got = throttled(
        decision, last=NOW - timedelta(seconds=age), interval=timedelta(seconds=interval)
    )
    if got is decision:
        assert age >= interval - 1e-5
        return
    assert got.wake_after is not None
    assert 0 <= got.wake_after <= interval
    if wake is None or wake > got.wake_after:
        # Tried again at its wake-up, it is written.
        later = NOW + timedelta(seconds=got.wake_after)
        again = throttle(
            WRITTEN,
            replace(decision, wake_after=None),
            now=later,
            last=NOW - timedelta(seconds=age),
            interval=timedelta(seconds=interval),
        )
        assert again.status == decision.status
