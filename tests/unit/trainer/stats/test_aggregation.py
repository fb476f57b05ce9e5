from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.stats import StatsError, StatsTracker, aggregate


def test_workers_weigh_by_their_counts() -> None:
    # Rewards: one of 0.5 and three of 0.8.
    workers = [
        {"rollout/reward": 0.5, "rollout/reward__count": 1.0},
        {"rollout/reward": 0.8, "rollout/reward__count": 3.0, "rollout/turns": 2.0},
        {"rollout/turns": 4.0, "rollout/turns__count": 2.0},
    ]
    assert aggregate(workers) == pytest.approx({"rollout/reward": 0.725, "rollout/turns": 4.0})


@pytest.mark.parametrize(
    "workers",
    [
        [],
        [{}],
        [{"a": 1.0, "a__count": 0.0}, {"a__count": 0.0}],
        [{"a": math.nan, "a__count": 0.0}],
        [{"a": 1.0}],
        [{"a__count": 3.0}],
    ],
)
def test_what_nobody_counted_is_left_out(workers: list[dict[str, float]]) -> None:
    assert aggregate(workers) == {}


def test_a_worker_without_records_does_not_weigh_in() -> None:
    workers = [{"a": 2.0, "a__count": 1.0}, {"a": math.nan, "a__count": 0.0}]
    assert aggregate(workers) == {"a": 2.0}


def test_nan_stays_news() -> None:
    workers = [{"a": 2.0, "a__count": 1.0}, {"a": math.nan, "a__count": 1.0}]
    assert math.isnan(aggregate(workers)["a"])


@pytest.mark.parametrize("count", [-1.0, math.nan, math.inf])
def test_an_impossible_count_is_refused_by_name(count: float) -> None:
    with pytest.raises(StatsError, match=f"stat 'a' has count {count}"):
        aggregate([{"a": 1.0, "a__count": count}])


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=5), max_size=5))
def test_however_records_spread_over_workers_the_mean_is_that_of_all(
    workers: list[list[float]],
) -> None:
    exports = []
    for values in workers:
        tracker = StatsTracker("rollout")
        for value in values:
            tracker.scalar(reward=value)
        exports.append(tracker.export())
    every = [value for values in workers for value in values]
    mean = {"rollout/reward": math.fsum(every) / len(every)} if every else {}
    assert aggregate(exports) == pytest.approx(mean, rel=1e-9, abs=1e-6)
