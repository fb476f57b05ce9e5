"""Small files of the kernel, of whatever content."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain_trainer.hardware.cpuinfo import processors
from drivetrain_trainer.hardware.files import list_of, number_of


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2400000\n", 2_400_000),
        ("-1", -1),
        ("0", 0),
        ("", None),
        ("--1", None),
        ("1 2", None),
        ("1.5", None),
        ("٣", None),
        ("²", None),
        ("9" * 5_000, None),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_a_number_is_one_or_none(tmp_path: Path, text: str, number: int | None) -> None:
    path = tmp_path / "value"
    path.write_text(text)
    assert number_of(path) == number


def test_what_is_not_there_or_no_file_is_none(tmp_path: Path) -> None:
    assert number_of(tmp_path / "missing") is None
    assert number_of(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", {0}), ("0-3,8", {0, 1, 2, 3, 8}), ("5,5", {5}), ("1-", {1})],
)
def test_lists(text: str, numbers: set[int]) -> None:
    assert list_of(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "1--2", "3-1", "0-99999999999", "0-65535,70000"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|is no range"):
        list_of(text)


def test_a_processor_without_a_number_is_none(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor : ²\n\nprocessor : 1\nmodel name : x\n")
    assert [found.index for found in processors(tmp_path)] == [1]
