"""The statistics against values by hand, against the paper's library, and by their laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from drivetrain_trainer.analysis.comparison.statistics import (
    Interval,
    Resampling,
    aggregate,
    aggregate_over,
    difference,
    improvement,
    interquartile_mean,
    profile,
    weights,
)

Floats = NDArray[np.float64]

OURS = [np.array([0.1, 0.4, 0.35, 0.8]), np.array([0.9, 1.3, 0.2, 0.75])]
THEIRS = [np.array([0.2, 0.1, 0.3, 0.5]), np.array([0.5, 0.6, 0.9, 0.45])]
"""A task each, four runs; what rliable 1.2.0 says of them is in the tests below."""

SCORES = hnp.arrays(
    np.float64, st.integers(1, 12), elements=st.floats(-1e6, 1e6, allow_subnormal=False)
)
STRATA = st.lists(SCORES, min_size=1, max_size=3)


def drawn(strata: list[Floats], *, repetitions: int = 4000, seed: int = 0) -> Resampling:
    return Resampling.drawn([one.size for one in strata], repetitions=repetitions, seed=[seed])


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 3.0], 2.0),
        # A third weighs 4/12: a quarter goes from either end, 1/12, 4/12, 1/12 stay.
        ([0.0, 6.0, 30.0], (0 + 4 * 6 + 30) / 6),
        ([100.0, 2.0, 4.0, -50.0], 3.0),
        # Of five, the second and the fourth count for three quarters.
        ([-90.0, 1.0, 2.0, 4.0, 90.0], (0.75 * 1 + 2 + 0.75 * 4) / 2.5),
        ([8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 4.5),
    ],
)
def test_interquartile_mean_by_hand(scores: list[float], expected: float) -> None:
    values = np.array(scores)
    assert interquartile_mean(values, weights([values])) == pytest.approx(expected)


def test_a_task_weighs_the_same_however_many_runs_it_has() -> None:
    once = [np.array([1.0, 2.0, 3.0, 4.0]), np.array([10.0, 20.0])]
    twice = [np.repeat(once[0], 5), once[1]]
    assert aggregate(once, drawn(once)).value == pytest.approx(aggregate(twice, drawn(twice)).value)
    # 1..4 weigh 1/8 each, 10 and 20 a quarter each: 3 and 4 and all of 10 are left.
    assert aggregate(once, drawn(once)).value == pytest.approx((3 / 8 + 4 / 8 + 10 / 4) / 0.5)


def test_as_the_papers_library_has_it() -> None:
    """Values and intervals of rliable 1.2.0 (20,000 and 5,000 resamplings)."""
    ours, theirs = drawn(OURS, repetitions=20_000), drawn(THEIRS, repetitions=20_000, seed=1)
    for strata, draws, value, low, high in (
        (OURS, ours, 0.575, 0.275, 0.85),
        (THEIRS, theirs, 0.4375, 0.325, 0.55),
    ):
        found = aggregate(strata, draws)
        assert found.value == pytest.approx(value)
        assert found.interval is not None
        assert (found.interval.low, found.interval.high) == pytest.approx((low, high), abs=0.03)
    found = improvement(OURS, THEIRS, (ours, theirs))
    assert found.value == pytest.approx(0.65625)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((0.359, 0.9375), abs=0.03)
    line = profile(OURS, np.array([0.0, 0.3, 0.5, 0.8, 1.0]), ours)
    assert line.value.tolist() == [1.0, 0.75, 0.5, 0.25, 0.125]
    assert line.low is not None
    assert line.high is not None
    assert line.low.tolist() == [1.0, 0.375, 0.25, 0.0, 0.0]
    assert line.high.tolist() == [1.0, 1.0, 0.75, 0.5, 0.375]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [([2.0, 3.0], [0.0, 1.0], 1.0), ([1.0], [1.0], 0.5), ([1.0, 5.0], [3.0, 5.0], 3 / 8)],
)
def test_probability_of_improvement_by_hand(
    ours: list[float], theirs: list[float], expected: float
) -> None:
    left, right = [np.array(ours)], [np.array(theirs)]
    assert improvement(left, right, (drawn(left), drawn(right))).value == expected


def test_one_run_of_a_task_gives_a_figure_without_an_interval() -> None:
    one, other = [np.array([1.0]), np.array([2.0, 3.0])], [np.array([0.0, 1.0])] * 2
    draws = drawn(one), drawn(other)
    assert aggregate(one, draws[0]).interval is None
    assert aggregate(other, draws[1]).interval is not None
    assert difference(one, other, draws).interval is None
    assert improvement(one, other, draws).interval is None
    assert profile(one, np.zeros(1), draws[0]).low is None
    assert aggregate_over([np.ones((1, 3))], drawn([np.ones(1)])).low is None


@given(STRATA, st.floats(-1e3, 1e3), st.floats(0.1, 10))
def test_the_mean_moves_with_the_scores_and_stays_among_them(
    strata: list[Floats], shift: float, scale: float
) -> None:
    weight, scores = weights(strata), np.concatenate(strata)
    found = interquartile_mean(scores, weight)
    slack = 1e-9 * (1 + np.abs(scores).max() * scale)
    assert scores.min() - slack <= found <= scores.max() + slack
    moved = interquartile_mean(scale * scores + shift, weight)
    assert moved == pytest.approx(scale * found + shift, abs=slack + 1e-6)


@given(STRATA, st.integers(0, 2**32))
def test_the_order_of_runs_and_outliers_change_nothing(strata: list[Floats], seed: int) -> None:
    generator = np.random.default_rng(seed)
    mixed = [generator.permutation(one) for one in strata]
    scores = np.concatenate(strata)
    value = interquartile_mean(scores, weights(strata))
    assert interquartile_mean(np.concatenate(mixed), weights(mixed)) == pytest.approx(value)
    if len(strata) == 1 and scores.size >= 4:
        scores[np.argmax(scores)] += 1e9
        assert interquartile_mean(scores, weights(strata)) == pytest.approx(value)


@given(STRATA, st.integers(1, 12), st.integers(0, 2**32))
def test_wins_of_both_sides_are_one_in_all(strata: list[Floats], size: int, seed: int) -> None:
    other = [np.random.default_rng(seed).choice(one, size) for one in strata]
    draws = drawn(strata, repetitions=20), drawn(other, repetitions=20)
    there = improvement(strata, other, draws)
    back = improvement(other, strata, draws[::-1])
    assert there.value + back.value == pytest.approx(1.0)
    assert 0 <= there.value <= 1
    assert improvement(strata, strata, (draws[0], draws[0])).value == pytest.approx(0.5)


@given(STRATA, st.integers(0, 1000))
def test_the_same_seed_gives_the_same_interval_which_lies_among_the_scores(
    strata: list[Floats], seed: int
) -> None:
    first = aggregate(strata, drawn(strata, repetitions=50, seed=seed))
    assert first == aggregate(strata, drawn(strata, repetitions=50, seed=seed))
    if first.interval is not None:
        scores = np.concatenate(strata)
        slack = 1e-9 * (1 + np.abs(scores).max())
        assert scores.min() - slack <= first.interval.low <= first.interval.high
        assert first.interval.high <= scores.max() + slack


@given(STRATA)
def test_a_profile_falls_from_one_to_none(strata: list[Floats]) -> None:
    scores = np.concatenate(strata)
    places = np.concatenate(([scores.min() - 1], np.sort(scores)))
    line = profile(strata, places, drawn(strata, repetitions=20))
    assert line.value[0] == pytest.approx(1.0)
    assert line.value[-1] == 0.0
    assert (np.diff(line.value) <= 1e-12).all()


def test_a_curve_is_the_aggregate_at_each_of_its_places() -> None:
    generator = np.random.default_rng(3)
    strata = [generator.normal(size=(5, 4)), generator.normal(size=(3, 4))]
    draws = Resampling.drawn([5, 3], repetitions=300, seed=[2])
    line = aggregate_over(strata, draws)
    assert line.low is not None
    assert line.high is not None
    for place in range(4):
        alone = aggregate([one[:, place] for one in strata], draws)
        assert alone.value == pytest.approx(line.value[place])
        assert alone.interval is not None
        assert alone.interval.low == pytest.approx(line.low[place])
        assert alone.interval.high == pytest.approx(line.high[place])


@pytest.mark.parametrize(("runs", "least", "most"), [(3, 0.6, 0.85), (10, 0.88, 0.99)])
def test_coverage_is_as_the_guide_says(runs: int, least: float, most: float) -> None:
    """Of normal scores, how often a 95 % interval holds the true mean; three runs are too few."""
    generator = np.random.default_rng(1)
    held = 0
    for trial in range(200):
        scores = [generator.normal(size=runs)]
        found = aggregate(scores, Resampling.drawn([runs], repetitions=400, seed=[trial])).interval
        assert found is not None
        held += 0.0 in found
    assert least < held / 200 < most


def test_an_interval_holds_its_ends() -> None:
    assert 1.0 in Interval(1.0, 2.0)
    assert 2 in Interval(1.0, 2.0)
    assert 2.1 not in Interval(1.0, 2.0)
    assert "1" not in Interval(1.0, 2.0)
