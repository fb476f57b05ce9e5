from __future__ import annotations

import csv
import io
import json
import math
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.analysis import formats
from drivetrain_trainer.analysis.formats import Format, MissingLibraryError, writer_of
from drivetrain_trainer.analysis.rows import Rows

TAGS = ("Train/mean_reward", "Perf/total_fps", 'reward/odd, "name"')
NAN, INF = math.nan, math.inf
VALUES = [[1.5, NAN, 0.0], [INF, -INF, 0.1], [NAN, NAN, 3.0]]
PRESENT = [[True, True, False], [True, True, True], [False, False, True]]
CHUNKS = [
    Rows(
        steps=np.array([10, 2**60, 2**60 + 1]),
        wall_times=np.array([1.7e9, 1.7e9 + 0.1, 1.7e9 + 0.2]),
        values=np.array(VALUES),
        present=np.array(PRESENT),
    ),
    Rows(
        steps=np.array([2**60 + 2]),
        wall_times=np.array([1.8e9]),
        values=np.array([[1.0], [2.0], [NAN]]),
        present=np.array([[True], [True], [False]]),
    ),
]


def written(form: Format, chunks: list[Rows], tags: tuple[str, ...] = TAGS) -> bytes:
    file = io.BytesIO()
    writer = writer_of(form, file, tags)
    for rows in chunks:
        writer.write(rows)
    writer.close()
    return file.getvalue()


def test_csv_tells_absent_from_not_a_number() -> None:
    lines = list(csv.reader(io.StringIO(written(Format.CSV, CHUNKS).decode())))
    assert lines == [
        ["step", "wall_time", *TAGS],
        ["10", "1700000000.0", "1.5", "inf", ""],
        ["1152921504606846976", "1700000000.1", "nan", "-inf", ""],
        ["1152921504606846977", "1700000000.2", "", "0.1", "3.0"],
        ["1152921504606846978", "1800000000.0", "1.0", "2.0", ""],
    ]


def column(values: list[float]) -> Rows:
    count = len(values)
    return Rows(
        steps=np.arange(count),
        wall_times=np.zeros(count),
        values=np.array([values]),
        present=np.ones((1, count), dtype=bool),
    )


def texts(values: list[float]) -> list[str]:
    lines = written(Format.CSV, [column(values)], ("reward/a",)).decode().splitlines()
    return [line.rsplit(",", 1)[1] for line in lines[1:]]


@given(st.lists(st.floats(width=32), min_size=1, max_size=5))
def test_a_32_bit_float_reads_back_as_the_same(values: list[float]) -> None:
    read = np.array([float(text) for text in texts(values)], dtype=np.float32)
    assert np.array_equal(read, np.array(values, dtype=np.float32), equal_nan=True)


@given(st.lists(st.floats(), min_size=1, max_size=5))
def test_a_64_bit_float_reads_back_as_the_same_or_in_32_bits(values: list[float]) -> None:
    narrow = [float(np.float32(v)) == v or math.isnan(v) for v in values if abs(v) < 1e38]
    read = [float(text) for text in texts(values)]
    if len(narrow) == len(values) and all(narrow):
        read = [float(np.float32(v)) for v in read]
    assert repr(read) == repr(values)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_every_float_looks_like_one(values: list[float]) -> None:
    assert all("." in text or "e" in text for text in texts(values))


def test_json_is_strict_and_tells_absent_from_not_a_number() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(written(Format.JSON, CHUNKS), parse_constant=refuse) == [
        {"step": 10, "wall_time": 1.7e9, TAGS[0]: 1.5, TAGS[1]: "Infinity"},
        {"step": 2**60, "wall_time": 1.7e9 + 0.1, TAGS[0]: "NaN", TAGS[1]: "-Infinity"},
        {"step": 2**60 + 1, "wall_time": 1.7e9 + 0.2, TAGS[1]: 0.1, TAGS[2]: 3.0},
        {"step": 2**60 + 2, "wall_time": 1.8e9, TAGS[0]: 1.0, TAGS[1]: 2.0},
    ]
    assert json.loads(written(Format.JSON, [])) == []


@pytest.mark.parametrize("cells", [1, 10**6])
def test_parquet_has_types_units_and_nulls(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "ROW_GROUP_CELLS", cells)
    content = written(Format.PARQUET, CHUNKS)
    file = pq.ParquetFile(io.BytesIO(content))
    assert file.num_row_groups == (2 if cells == 1 else 1)
    table = file.read()
    assert [str(field.type) for field in table.schema] == ["int64", *["double"] * 4]
    assert [field.nullable for field in table.schema] == [False, False, True, True, True]
    units = [field.metadata[b"unit"] for field in table.schema]
    assert units == [b"steps", b"s", b"return", b"steps/s", b"1"]
    assert table.schema.metadata[b"metric_schema_version"] == b"1"
    assert repr(table.to_pydict()[TAGS[0]]) == "[1.5, nan, None, 1.0]"
    assert repr(table.to_pydict()[TAGS[1]]) == "[inf, -inf, 0.1, 2.0]"
    assert repr(table.to_pydict()[TAGS[2]]) == "[None, None, 3.0, None]"
    assert table.to_pydict()["step"] == [10, 2**60, 2**60 + 1, 2**60 + 2]


def test_without_pyarrow_parquet_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'drivetrain\[analysis\]'"):
        written(Format.PARQUET, CHUNKS)
