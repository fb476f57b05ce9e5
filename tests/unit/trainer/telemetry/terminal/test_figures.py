from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.telemetry.terminal import figures


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (0.0012, "0.0012"),
        (3e-4, "3.00e-04"),
        (-0.5, "-0.5000"),
        (1.0, "1.0000"),
        (12.3456, "12.346"),
        (123.456, "123.46"),
        (5123.21, "5,123.2"),
        (999_999.0, "999,999.0"),
        (1_234_567.0, "1.235M"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_value(number: float, text: str) -> None:
    assert figures.value(number) == text


@given(st.floats())
def test_any_number_fits_its_column(number: float) -> None:
    assert len(figures.value(number)) <= 12
    assert len(figures.compact(number, 2)) <= 12


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [
        (999, 4, "999"),
        (1000, 4, "1k"),
        (531_200, 4, "531.2k"),
        (12_345_678, 4, "12.35M"),
        (5123.2, 2, "5.1k"),
        (1e22, 4, "1.00e+22"),
        (-5123.2, 3, "-5.12k"),
        (math.nan, 4, "nan"),
    ],
)
def test_compact(number: float, digits: int, text: str) -> None:
    assert figures.compact(number, digits) == text


@pytest.mark.parametrize(
    ("number", "text"), [(None, "-"), (8142.3, "8,142"), (260_000.0, "260k"), (0.0, "0")]
)
def test_rate(number: float | None, text: str) -> None:
    assert figures.rate(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(2.0, "2"), (0.25, "0.25"), (0.3, "0.3"), (100.0, "100"), (0.0, "0")]
)
def test_gauge(number: float, text: str) -> None:
    assert figures.gauge(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.004, "0.00"), (7.86, "7.86"), (123.45, "123.5"), (12_345.6, "12,346"), (math.nan, "nan")],
)
def test_milliseconds(number: float, text: str) -> None:
    assert figures.milliseconds(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (math.inf, "-"),
        (-3.0, "0:00:00"),
        (66.4, "0:01:06"),
        (3600 * 5 + 61, "5:01:01"),
        (86_400 * 2 + 3600 * 4, "2d 04:00:00"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert figures.duration(seconds) == text
