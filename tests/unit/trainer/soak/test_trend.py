"""What is a leak, and what only looks like one."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.soak.trend import Point, decay, growth, mann_kendall, theil_sen

LIMIT = 100.0


def series(values: list[float]) -> list[Point]:
    return [(5.0 * index, value) for index, value in enumerate(values)]


def flat(count: int = 120) -> list[float]:
    return [1000.0] * count


def line(amount: float, count: int = 120) -> list[float]:
    return [1000 + amount * index / (count - 1) for index in range(count)]


def noisy(amount: float, width: float, count: int = 120) -> list[float]:
    chance = random.Random(5)
    return [value + chance.uniform(-width, width) for value in line(amount, count)]


def saw(height: float, period: int, count: int = 120) -> list[float]:
    return [1000 + height * (index % period) / period for index in range(count)]


def step(at: float, height: float, count: int = 120) -> list[float]:
    return [1000 + (height if index >= at * count else 0) for index in range(count)]


LEAKS = {
    "line": line(300),
    "just above": line(130),
    "noisy": noisy(300, 100),
    "from the middle": [*flat(60), *line(300, 60)],
    "stairs": [1000 + 50 * (index // 10) for index in range(120)],
    "saw-tooth on a line": [a + b for a, b in zip(saw(200, 9), line(300), strict=True)],
    "outliers": [0.0 if index % 10 == 3 else value for index, value in enumerate(line(300))],
    "twelve points": line(300, 12),
}
SOUND = {
    "flat": flat(),
    "below the limit": line(80),
    "noise": noisy(0, 400),
    "saw-tooth": saw(400, 20),
    "slow saw-tooth": saw(400, 60),
    "one saw-tooth and a half": saw(140, 80),
    "step early": step(0.2, 500),
    "step in the middle": step(0.5, 500),
    "step late": step(0.8, 500),
    "falling": line(-500),
    "growth that ends": [*line(150, 24), *[1150.0] * 96],
    "spikes": [5000.0 if index % 9 == 0 else 1000.0 for index in range(120)],
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_seen(name: str) -> None:
    found = growth(series(LEAKS[name]), LIMIT)
    assert found is not None
    assert found.leaks
    assert found.amount > LIMIT


@pytest.mark.parametrize("name", SOUND)
def test_what_is_no_leak_passes(name: str) -> None:
    found = growth(series(SOUND[name]), LIMIT)
    assert found is not None
    assert not found.leaks, found


def test_noise_of_few_samples_is_no_leak() -> None:
    """As a loaded machine gives: a dozen samples of memory that jumps by twice the limit."""
    chance = random.Random(11)
    found = 0
    for count in [12, 16, 20, 24] * 500:
        verdict = growth(series([chance.uniform(0, 2 * LIMIT) for _ in range(count)]), LIMIT)
        assert verdict is not None
        found += verdict.leaks
    assert found <= 4, f"{found} of 2,000"  # a score of 3 is passed by chance in 2.7


@pytest.mark.parametrize(
    ("values", "score"),
    [
        ([1, 2, 3, 4], 6 / math.sqrt(4 * 3 * 13 / 18)),
        ([3, 1, 2], -1 / math.sqrt(3 * 2 * 11 / 18)),
        ([7, 7, 7], 0.0),
    ],
)
def test_the_score_of_a_trend(values: list[float], score: float) -> None:
    assert mann_kendall(series(values)) == pytest.approx(score)


def test_few_points_say_nothing() -> None:
    assert growth(series(line(300, 11)), LIMIT) is None
    assert decay([10.0] * 11) is None


def test_the_slope_is_the_median_of_all_pairs() -> None:
    # Slopes of the pairs: 1, 1, 10/3, 1, 9/2, 8 -> the median lies between 1 and 10/3.
    points = [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (3.0, 10.0)]
    assert theil_sen(points) == pytest.approx((1 + 10 / 3) / 2)
    assert theil_sen([(1.0, 5.0), (1.0, 9.0)]) == 0.0


@given(
    slope=st.floats(-100, 100),
    start=st.floats(-1e6, 1e6),
    count=st.integers(2, 900),
    wrong=st.floats(0, 0.25),
)
def test_a_quarter_of_wrong_points_moves_the_slope_little(
    slope: float, start: float, count: int, wrong: float
) -> None:
    chance = random.Random(count)
    points = [(float(index), start + slope * index) for index in range(count)]
    if count >= 40:
        for index in chance.sample(range(count), int(wrong * count)):
            points[index] = (points[index][0], chance.uniform(-1e6, 1e6))
    found = theil_sen(points)
    spread = 0.0 if count < 40 else 2e6 / count * 8
    assert math.isclose(found, slope, rel_tol=1e-6, abs_tol=1e-6 + spread)


@pytest.mark.parametrize(
    ("rates", "lost"),
    [
        ([100.0] * 30, 0.0),
        ([100.0] * 10 + [80.0] * 10 + [40.0] * 10, 0.6),
        ([50.0] * 15 + [100.0] * 15, 0.0),
        ([100.0, 0.1, 100.0] * 10, 0.0),
        ([0.0] * 30, 0.0),
    ],
)
def test_decay_compares_the_thirds(rates: list[float], lost: float) -> None:
    found = decay(rates)
    assert found is not None
    assert found.lost == pytest.approx(lost)
