from __future__ import annotations

import time

import pytest

from drivetrain_trainer.telemetry.timeline import ITERATION_TIME, accounted_ms
from drivetrain_trainer.training.phases import Phase, PhaseTimeline


class Clock:
    """Nanoseconds under the test's control."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 10**18
        monkeypatch.setattr(time, "perf_counter_ns", lambda: self.now)

    def pass_ms(self, milliseconds: float) -> None:
        self.now += round(milliseconds * 1e6)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_phases_are_means_over_complete_iterations_in_their_units(clock: Clock) -> None:
    timeline = PhaseTimeline()
    for wait, learn in ((1.0, 30.0), (3.0, 50.0)):
        timeline.begin()
        with timeline.measure(Phase.COLLECTOR_WAIT):
            clock.pass_ms(wait)
        with timeline.measure(Phase.LEARNING):
            clock.pass_ms(learn)
        clock.pass_ms(6.0)
        timeline.end()
    report = timeline.report()
    assert report[Phase.COLLECTOR_WAIT] == pytest.approx(2.0)
    assert report[Phase.LEARNING] == pytest.approx(0.040)
    assert report[ITERATION_TIME] == pytest.approx(0.048)
    assert accounted_ms(report) == pytest.approx(42.0)


def test_nested_phases_are_not_accounted_twice(clock: Clock) -> None:
    timeline = PhaseTimeline()
    timeline.begin()
    with timeline.measure(Phase.INFERENCE), timeline.measure(Phase.INFERENCE_FORWARD):
        clock.pass_ms(5.0)
    timeline.end()
    report = timeline.report()
    assert report[Phase.INFERENCE_FORWARD] == pytest.approx(5.0)
    assert accounted_ms(report) == pytest.approx(5.0)
    assert accounted_ms(report) <= 1000 * report[ITERATION_TIME]


def test_work_at_a_boundary_is_no_iteration_time(clock: Clock) -> None:
    timeline = PhaseTimeline()
    timeline.begin()
    with timeline.outside():
        clock.pass_ms(5_000.0)
    clock.pass_ms(7.0)
    timeline.end()
    assert timeline.report()[ITERATION_TIME] == pytest.approx(0.007)


def test_an_iteration_that_was_not_finished_is_not_reported(clock: Clock) -> None:
    timeline = PhaseTimeline()
    timeline.begin()
    clock.pass_ms(5.0)
    assert timeline.report() == {}
    timeline.end()
    assert timeline.report()[ITERATION_TIME] == pytest.approx(0.005)
    assert timeline.report() == {}


def test_phases_of_an_iteration_that_was_not_finished_are_no_others(clock: Clock) -> None:
    """A stop leaves the last iteration undone; its phases are of no Iter Wall."""
    timeline = PhaseTimeline()
    timeline.begin()
    with timeline.measure(Phase.LEARNING):
        clock.pass_ms(4.0)
    timeline.end()
    timeline.begin()
    with timeline.measure(Phase.COLLECTOR_WAIT):
        clock.pass_ms(90.0)
    report = timeline.report()
    assert report[Phase.COLLECTOR_WAIT] == 0.0
    assert report[Phase.LEARNING] == report[ITERATION_TIME] == pytest.approx(0.004)
    assert accounted_ms(report) <= 1000 * report[ITERATION_TIME]
    timeline.begin()
    timeline.end()
    assert timeline.report()[Phase.COLLECTOR_WAIT] == 0.0
