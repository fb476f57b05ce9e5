from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from fake_cluster import START, FakeCluster
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain_api.status import ConditionStatus, ConditionType, Reason, TrainingRunStatus
from drivetrain_operator.reconcile.conditions import (
    MESSAGE_LIMIT,
    bounded,
    cleared,
    condition,
    warning,
)
from drivetrain_operator.reconcile.context import Context

CONTEXT = Context(FakeCluster().observe(), TrainingRunStatus(), START)


def test_the_time_moves_with_the_status_alone() -> None:
    first = condition(CONTEXT, ConditionType.RUNNING, Reason.PODS_RUNNING, "a", holds=True)
    later = replace(first, now=START + timedelta(seconds=9))
    same = condition(later, ConditionType.RUNNING, Reason.PODS_RUNNING, "b", holds=True)
    found = same.status.condition(ConditionType.RUNNING)
    assert found is not None
    assert (found.last_transition_time, found.message) == (START, "b")
    other = condition(later, ConditionType.RUNNING, Reason.PODS_STOPPED, holds=False)
    found = other.status.condition(ConditionType.RUNNING)
    assert found is not None
    assert (found.last_transition_time, found.status) == (later.now, ConditionStatus.FALSE)


def test_each_type_stands_once_in_a_fixed_order() -> None:
    context = CONTEXT
    for type_ in (*reversed(ConditionType), *ConditionType):
        context = condition(context, type_, Reason.VALID, holds=True)
    assert [c.type for c in context.status.conditions] == list(ConditionType)


def test_what_was_never_set_is_not_set_by_clearing_it() -> None:
    assert cleared(CONTEXT, ConditionType.STALLED, Reason.PROGRESSING) is CONTEXT


@settings(deadline=None)
@given(st.text(max_size=6000))
def test_messages_are_bounded_and_printable(message: str) -> None:
    told = bounded(message)
    assert len(told) <= MESSAGE_LIMIT
    assert told.isprintable()
    assert bounded(told) == told


@pytest.mark.parametrize(("given_", "told"), [("a\nb", "a b"), ("  x  ", "x"), ("é", "é")])
def test_ordinary_words_are_left_as_they_are(given_: str, told: str) -> None:
    assert bounded(given_) == told
    assert warning(Reason.STALLED, given_).message == told
