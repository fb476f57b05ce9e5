from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.training.schedule import Every


@pytest.mark.parametrize(
    ("interval", "last", "env_steps", "due"),
    [
        (None, 0, 10**9, False),
        (100, 0, 99, False),
        (100, 0, 100, True),
        (100, 100, 199, False),
        (100, 150, 200, True),
        (100, 0, 1000, True),
        (7, 6, 7, True),
    ],
)
def test_due_when_a_multiple_was_passed(
    interval: int | None, last: int, env_steps: int, due: bool
) -> None:
    assert Every(interval, last).due(env_steps) is due


@given(interval=st.integers(1, 50), stride=st.integers(1, 70), boundaries=st.integers(1, 200))
def test_each_multiple_is_served_once_whatever_the_stride(
    interval: int, stride: int, boundaries: int
) -> None:
    every, served = Every(interval), 0
    for boundary in range(1, boundaries + 1):
        env_steps = boundary * stride
        if every.due(env_steps):
            every.done(env_steps)
            served += 1
        assert not every.due(env_steps)
    expected = {boundary * stride // interval for boundary in range(1, boundaries + 1)} - {0}
    assert served == len(expected)
