"""Curves and bands, with expected values worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.analysis import curves
from drivetrain_trainer.analysis.curves import Axis, Curve, Spread
from drivetrain_trainer.analysis.runs import Series


def series(values: Sequence[float], *, steps: Sequence[int] | None = None) -> Series:
    count = len(values)
    return Series(
        np.array(steps if steps is not None else range(10, 10 * count + 1, 10), dtype=np.int64),
        100.0 + 2.0 * np.arange(count),
        np.array(values, dtype=np.float64),
    )


def line(x: Sequence[float], y: Sequence[float]) -> Curve:
    return Curve(np.array(x, dtype=np.float64), np.array(y, dtype=np.float64))


@pytest.mark.parametrize(
    ("axis", "x"),
    [
        (Axis.ENV_STEPS, [10, 20, 30]),
        (Axis.WALL, [5, 7, 9]),
        (Axis.ITERATIONS, [100, 200, 300]),
    ],
)
def test_a_curve_over_each_axis(axis: Axis, x: list[float]) -> None:
    iterations = series([100.0, 300.0], steps=[10, 30])
    found = curves.curve(series([1.0, 2.0, 3.0]), axis, iterations=iterations, start=95.0)
    assert found.x.tolist() == x
    assert found.y.tolist() == [1.0, 2.0, 3.0]


def test_iterations_that_were_not_logged_are_refused() -> None:
    with pytest.raises(ValueError, match="needs Train/iteration"):
        curves.curve(series([1.0]), Axis.ITERATIONS)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        (1, [1.0, 3.0, np.nan, 5.0]),
        (2, [1.0, 2.0, 3.0, 5.0]),
        (3, [1.0, 2.0, 2.0, 4.0]),
        (99, [1.0, 2.0, 2.0, 3.0]),
    ],
)
def test_a_trailing_mean_leaves_gaps_out(reports: int, expected: list[float]) -> None:
    values = np.array([1.0, 3.0, np.nan, 5.0])
    np.testing.assert_allclose(curves.smoothed(values, reports), expected)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.integers(2, 50))
def test_a_trailing_mean_is_the_mean_of_what_it_says(values: list[float], reports: int) -> None:
    expected = [np.mean(values[max(0, end - reports) : end]) for end in range(1, len(values) + 1)]
    np.testing.assert_allclose(
        curves.smoothed(np.array(values), reports), expected, rtol=1e-6, atol=1e-4
    )


@pytest.mark.parametrize(
    ("spread", "middle", "low", "high"),
    [
        (Spread.MINMAX, 4.0, 1.0, 9.0),
        (Spread.IQR, 3.0, 2.5, 4.5),
        (Spread.NONE, 4.0, 4.0, 4.0),
        # Deviations -3, -1, -1, 5 of four values: the square root of 36 / 3.
        (Spread.SD, 4.0, 4.0 - np.sqrt(12.0), 4.0 + np.sqrt(12.0)),
    ],
)
def test_a_band_over_four_seeds(spread: Spread, middle: float, low: float, high: float) -> None:
    found = curves.band([line([0, 10], [value, value]) for value in (1, 3, 3, 9)], spread)
    assert found is not None
    for array, expected in ((found.middle, middle), (found.low, low), (found.high, high)):
        np.testing.assert_allclose(array, expected)


def test_a_band_covers_what_all_seeds_have() -> None:
    found = curves.band([line([0, 10], [0, 10]), line([4, 20], [0, 16])], Spread.MINMAX)
    assert found is not None
    assert (found.x[0], found.x[-1]) == (4.0, 10.0)
    # At 4 the values are 4 and 0, at 10 they are 10 and 6.
    assert (found.middle[0], found.middle[-1]) == (2.0, 8.0)


def test_seeds_without_a_common_range_have_no_band() -> None:
    assert curves.band([line([0, 1], [0, 0]), line([2, 3], [0, 0])], Spread.MINMAX) is None
    assert curves.band([line([0, 1], [np.nan, np.nan])], Spread.MINMAX) is None


def test_nan_is_bridged_in_a_band() -> None:
    found = curves.band([line([0, 1, 2], [0, np.nan, 2])], Spread.MINMAX)
    assert found is not None
    np.testing.assert_allclose(found.middle, found.x)


RUN = {
    "Perf/iteration_time": series([0.010, 0.020]),
    "Perf/learning_time": series([0.004, 0.016]),
    "Perf/learner_collector_wait_ms": series([5.0, 1.0]),
    "Perf/collector_env_step_ms": series([3.0, 3.0]),
    "Perf/collector_learner_action_wait_ms": series([1.0, 9.0]),
}


def test_shares_of_the_learner_with_other_last() -> None:
    found = curves.learner_timeline(RUN, Axis.ENV_STEPS)
    assert found is not None
    assert found.labels == ("Collector Wait", "Learning", "Other")
    np.testing.assert_allclose(found.shares, [[0.5, 0.05], [0.4, 0.8], [0.1, 0.15]])
    assert found.x.tolist() == [10.0, 20.0]


def test_rollouts_on_the_learners_thread_are_shares_of_it_and_no_cycle() -> None:
    run = {**RUN, "Perf/collection_time": series([0.001, 0.003])}
    found = curves.learner_timeline(run, Axis.ENV_STEPS, algo="ppo")
    assert found is not None
    assert found.labels == ("Rollout Wall", "Collector Wait", "Learning", "Other")
    np.testing.assert_allclose(found.shares[0], [0.1, 0.15])
    np.testing.assert_allclose(found.shares.sum(axis=0), [1.0, 1.0])
    assert curves.collector_timeline(run, Axis.ENV_STEPS, algo="ppo") is None


def test_shares_of_the_collector_are_of_its_own_cycle() -> None:
    found = curves.collector_timeline(RUN, Axis.ENV_STEPS)
    assert found is not None
    assert found.labels == ("Learner Action Wait", "Env Step")
    np.testing.assert_allclose(found.shares, [[0.25, 0.75], [0.75, 0.25]])


def test_more_time_accounted_than_there_was_is_shown() -> None:
    over = {**RUN, "Perf/learning_time": series([0.010, 0.020])}
    found = curves.learner_timeline(over, Axis.ENV_STEPS)
    assert found is not None
    np.testing.assert_allclose(found.shares.sum(axis=0), [1.5, 1.05])


def test_reports_are_binned_by_time_and_not_by_count() -> None:
    """A bin's share is its phases' time over its iterations' time."""
    count = 2 * curves.BINS
    run = {
        "Perf/iteration_time": series([0.010, 0.030] * curves.BINS),
        "Perf/learning_time": series([0.010, 0.0] * curves.BINS),
    }
    found = curves.learner_timeline(run, Axis.ENV_STEPS)
    assert found is not None
    assert found.shares.shape == (2, curves.BINS)
    np.testing.assert_allclose(found.shares[0], 0.25)
    assert found.x[0] == pytest.approx(15.0)
    assert found.x[-1] == pytest.approx(10 * count - 5.0)


def test_a_run_without_timings_has_no_timeline() -> None:
    assert curves.learner_timeline({}, Axis.ENV_STEPS) is None
    assert curves.collector_timeline({}, Axis.ENV_STEPS) is None


def test_timelines_of_seeds_are_averaged_where_both_are() -> None:
    longer = {tag: Series(one.steps + 5, one.wall_times, one.values) for tag, one in RUN.items()}
    each = [curves.learner_timeline(run, Axis.ENV_STEPS) for run in (RUN, longer)]
    found = curves.mean_timeline([one for one in each if one is not None])
    assert found is not None
    assert (found.x[0], found.x[-1]) == (15.0, 20.0)
    # Collector Wait at 15: halfway (0.275) in one run, 0.5 in the other.
    assert found.shares[0][0] == pytest.approx((0.275 + 0.5) / 2)


def test_warm_up_is_left_out_of_performance_alone() -> None:
    run = {
        "Perf/learning_time": series([0.0, 0.001, 0.002, 0.003]),
        "Perf/total_fps": series([900.0, 500.0, 10.0, 11.0]),
        "Train/mean_reward": series([1.0, 2.0, 3.0, 4.0]),
    }
    found = curves.without_warm_up(run)
    assert found["Perf/total_fps"].values.tolist() == [10.0, 11.0]
    assert found["Train/mean_reward"].values.tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("learning", [[0.0, 0.0], [0.1, 0.1]], ids=["all warm-up", "none"])
def test_a_run_that_is_all_or_no_warm_up_is_left_as_it_is(learning: list[float]) -> None:
    run = {"Perf/learning_time": series(learning), "Perf/total_fps": series([1.0, 2.0])}
    assert curves.without_warm_up(run) == run
