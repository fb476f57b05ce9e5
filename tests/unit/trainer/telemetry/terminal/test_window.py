from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.telemetry.terminal.window import RESOLUTION, Pace, SlidingMean


def test_values_are_means_over_the_last_two_seconds() -> None:
    window = SlidingMean()
    for now, value in [(0.0, 100.0), (1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]:
        window.append(now, {"a": value})
    means = window.means(3.0)
    assert means.values == {"a": 2.0}
    assert means.samples == 3


def test_a_tag_that_is_reported_rarely_keeps_its_last_value() -> None:
    window = SlidingMean()
    window.append(0.0, {"rare": 7.0, "often": 1.0})
    window.append(5.0, {"often": 3.0})
    assert window.means(5.0).values == {"rare": 7.0, "often": 3.0}


def test_an_empty_window_shows_the_last_report_and_no_samples() -> None:
    window = SlidingMean()
    window.append(0.0, {"a": 4.0})
    means = window.means(100.0)
    assert (means.samples, means.values) == (0, {"a": 4.0})


def test_a_tag_is_averaged_over_the_reports_that_hold_it() -> None:
    window = SlidingMean()
    window.append(0.0, {"a": 1.0})
    window.append(0.5, {"a": 3.0, "b": 10.0})
    assert window.means(1.0).values == {"a": 2.0, "b": 10.0}


def test_a_nan_shows_until_it_leaves_the_window() -> None:
    window = SlidingMean()
    window.append(0.0, {"a": math.nan})
    window.append(1.0, {"a": 1.0})
    assert math.isnan(window.means(1.5).values["a"])
    assert window.means(2.5).values == {"a": 1.0}


def test_any_rate_of_reports_costs_a_bounded_redraw() -> None:
    window = SlidingMean()
    for index in range(10_000):
        window.append(index / 1000, {"a": float(index)})
    assert len(window._buckets) <= RESOLUTION + 1
    means = window.means(9.999)
    assert means.samples == pytest.approx(2000, abs=2000 / RESOLUTION)
    assert means.values["a"] == pytest.approx(9000, abs=1000 / RESOLUTION)


@given(st.lists(st.tuples(st.floats(0.04, 1.0), st.floats(-1e6, 1e6)), min_size=1, max_size=60))
def test_agrees_with_a_plain_mean_where_reports_are_apart(
    steps: list[tuple[float, float]],
) -> None:
    window = SlidingMean()
    now = 0.0
    taken: list[tuple[float, float]] = []
    for gap, value in steps:
        now += gap
        taken.append((now, value))
        window.append(now, {"a": value})
    inside = [value for at, value in taken if now - at <= 2.0]
    means = window.means(now)
    assert means.samples == len(inside)
    assert means.values["a"] == pytest.approx(sum(inside) / len(inside), abs=1e-6)


def test_pace_is_the_progress_of_the_last_minute_pauses_included() -> None:
    pace = Pace()
    for second in range(101):
        pace.append(float(second), 10 * second)
    assert pace.rate(100.0, 1000) == pytest.approx(10.0)
    assert pace.rate(130.0, 1000) == pytest.approx(600 / 90, rel=0.02)
    assert len(pace._points) <= RESOLUTION + 2


def test_pace_is_unknown_before_anything_moved() -> None:
    pace = Pace()
    assert pace.rate(0.0, 0) is None
    pace.append(0.0, 50)
    assert pace.rate(0.0, 50) is None
    assert pace.rate(5.0, 50) is None
