"""The table of statements is whole, and what it names is there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "seed-statements.md"
COUNTS = {"L": 139, "M": 99, "T": 36, "R": 51}
"""Statements of each source document."""
PARTS = ("PPO and APPO", "Tensor runtime", "Experiments", "Background")
"""What a row without a module may wait for, or be."""


@dataclass(frozen=True)
class Row:
    id: str
    statement: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    note: str


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text().splitlines():
        if re.match(r"\| *[LMTR]-", line):
            name, statement, module, test, note = (c.strip() for c in line.strip("|").split("|"))
            found.append(Row(name, statement, _quoted(module), _quoted(test), note))
    return found


def _quoted(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))


ROWS = rows()


def test_every_statement_is_there_once_in_its_order() -> None:
    expected = [f"{list_}-{n:03}" for list_, count in COUNTS.items() for n in range(1, count + 1)]
    assert [row.id for row in ROWS] == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_no_row_is_empty_and_what_it_names_is_there(row: Row) -> None:
    assert row.statement
    if not (row.modules and row.tests):
        assert row.note.startswith(PARTS), "neither module and test nor the part it waits for"
    for path in row.modules:
        assert (ROOT / path).is_file(), path
    for test in row.tests:
        path, _, function = test.partition("::")
        assert path.startswith("tests/"), test
        text = (ROOT / path).read_text()
        assert not function or re.search(rf"^ *def {function}\(", text, re.MULTILINE), test
