from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_operator.cli.figures import bar, duration, figure, size
from drivetrain_operator.cli.table import pairs, table, wrapped


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (0.9, "0s"),
        (59, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (599, "9m59s"),
        (601, "10m"),
        (3_600, "1h"),
        (5_400, "1h30m"),
        (36_000 + 1_800, "10h"),
        (86_400 + 7_200, "1d2h"),
        (40 * 86_400, "40d"),
    ],
)
def test_a_duration_shows_its_largest_unit_and_the_next_where_that_is_small(
    seconds: float, text: str
) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5_500_000, "5.2 MiB"), (2**34, "16 GiB")],
)
def test_a_size_has_a_binary_prefix(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("decimal", "text"),
    [
        (None, "-"),
        ("0", "0"),
        ("-0.123456", "-0.12346"),
        ("8123.45", "8123.4"),
        ("1.2e6", "1,200,000"),
    ],
)
def test_a_figure_has_five_digits(decimal: str | None, text: str) -> None:
    assert figure(decimal) == text


@given(st.integers(-10, 1000), st.integers(1, 60))
def test_a_bar_is_always_as_wide_as_asked(percent: int, width: int) -> None:
    shown = bar(percent, width)
    assert len(shown) == width + 2
    assert shown.count("#") == width * min(max(percent, 0), 100) // 100


def test_columns_are_as_wide_as_what_they_hold() -> None:
    assert table(("NAME", "N"), [("a", "1"), ("longer", "22")], right=("N",)) == [
        "NAME      N",
        "a         1",
        "longer   22",
    ]


@given(
    st.lists(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1), max_size=40),
    st.integers(0, 120),
)
def test_prose_is_wrapped_below_itself_and_no_word_is_lost(words: list[str], width: int) -> None:
    lines = wrapped(("A", "PROSE"), [("x", " ".join(words))], width)
    assert "".join(line[len("A   ") :] for line in lines[1:]).replace(" ", "") == "".join(words)
    assert all(line.startswith("    ") for line in lines[2:])


def test_pairs_leave_out_what_is_empty() -> None:
    assert pairs([("A", "1"), ("Long", ""), ("Bcd", "2")], indent=1) == [" A:    1", " Bcd:  2"]
