"""Tables of extracted metrics: CSV, JSON, Parquet; one row a step, one column a tag.

Columns are ``step`` (64-bit integer), ``wall_time`` (seconds since 1970, 64-bit float), then a
64-bit float for each tag. What was not logged at a step and what was logged as NaN are told
apart in each format.
"""

from __future__ import annotations

import csv
import io
import json
import math
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

import numpy as np

from drivetrain_api.metrics import METRIC_SCHEMA_VERSION, MetricSchema, UnknownMetricError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from drivetrain_trainer.analysis.rows import Rows

STEP: Final = "step"
WALL_TIME: Final = "wall_time"
ROW_GROUP_CELLS: Final = 2_000_000
"""Cells that a Parquet row group gathers before it is written: 16 MB."""


class Format(StrEnum):
    """Form of the table."""

    CSV = "csv"
    """An empty field: not logged; ``nan``, ``inf``, ``-inf``: logged so."""
    JSON = "json"
    """A list of objects; a tag that was not logged is absent; ``"NaN"`` and the like are text."""
    PARQUET = "parquet"
    """Null: not logged; NaN: logged so. Units stand in the fields' metadata."""


class MissingLibraryError(RuntimeError):
    """The format needs a library that is not installed; the message says how to get it."""


class TableWriter(Protocol):
    """Writes rows to an open file."""

    def write(self, rows: Rows) -> None:
        """Append rows."""

    def close(self) -> None:
        """Complete the table; the file stays open."""


def writer_of(form: Format, file: BinaryIO, tags: Sequence[str]) -> TableWriter:
    """The writer of a format.

    Raises:
        MissingLibraryError: Parquet without pyarrow.
    """
    if form is Format.CSV:
        return CsvWriter(file, tags)
    if form is Format.JSON:
        return JsonWriter(file, tags)
    return ParquetWriter(file, tags)


class CsvWriter:
    """Comma separated, with a header line."""

    def __init__(self, file: BinaryIO, tags: Sequence[str]) -> None:
        self._file = file
        head = io.StringIO()
        csv.writer(head, lineterminator="\n").writerow([STEP, WALL_TIME, *tags])
        file.write(head.getvalue().encode())

    def write(self, rows: Rows) -> None:
        """Append rows."""
        forms, columns = ["%d", "%r"], [rows.steps.tolist(), rows.wall_times.tolist()]
        for values, present in zip(rows.values, rows.present, strict=True):
            form, cells = _float_form(values), values.tolist()
            if not present.all():
                texts = map(form.__mod__, cells)
                cells = [text if there else "" for text, there in zip(texts, present, strict=True)]
                form = "%s"
            forms.append(form)
            columns.append(cells)
        line = ",".join(forms) + "\n"
        self._file.write("".join(map(line.__mod__, zip(*columns, strict=True))).encode())

    def close(self) -> None:
        """Nothing is held back."""


class JsonWriter:
    """One array of objects, one object a line."""

    def __init__(self, file: BinaryIO, tags: Sequence[str]) -> None:
        self._file = file
        self._tags = tuple(tags)
        self._before = b"["

    def write(self, rows: Rows) -> None:
        """Append rows."""
        columns = [
            [f'{{"{STEP}": {step}' for step in rows.steps.tolist()],
            [f'"{WALL_TIME}": {json.dumps(_plain(time))}' for time in rows.wall_times.tolist()],
        ]
        for tag, values, present in zip(self._tags, rows.values, rows.present, strict=True):
            columns.append(_members(tag, values, present))
        lines = (", ".join(filter(None, members)) for members in zip(*columns, strict=True))
        self._file.write(self._before + b"\n" + "},\n".join(lines).encode() + b"}")
        self._before = b","

    def close(self) -> None:
        """End the array."""
        self._file.write(b"\n]\n" if self._before == b"," else b"[]\n")


class ParquetWriter:
    """Row groups of some megabytes, compressed with Zstandard."""

    def __init__(self, file: BinaryIO, tags: Sequence[str]) -> None:
        try:
            import pyarrow as pa  # noqa: PLC0415 - large, and of this format alone
            import pyarrow.parquet as pq  # noqa: PLC0415 - as above
        except ImportError as error:
            raise MissingLibraryError(
                "Parquet needs pyarrow: pip install 'drivetrain[analysis]', or choose --format csv"
            ) from error
        self._arrow = pa
        fields = [
            pa.field(STEP, pa.int64(), nullable=False, metadata={"unit": "steps"}),
            pa.field(WALL_TIME, pa.float64(), nullable=False, metadata={"unit": "s"}),
            *(pa.field(tag, pa.float64(), metadata=_unit(tag)) for tag in tags),
        ]
        version = {"metric_schema_version": str(METRIC_SCHEMA_VERSION)}
        self._schema = pa.schema(fields, metadata=version)
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._batches: list[object] = []
        self._cells = 0

    def write(self, rows: Rows) -> None:
        """Append rows; they are written with their row group."""
        pa = self._arrow
        columns = [pa.array(rows.steps), pa.array(rows.wall_times)]
        for values, present in zip(rows.values, rows.present, strict=True):
            columns.append(pa.array(values, mask=None if present.all() else ~present))
        self._batches.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._cells += rows.values.size
        if self._cells >= ROW_GROUP_CELLS:
            self._write_group()

    def close(self) -> None:
        """Write what is held, and the footer."""
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._batches:
            table = self._arrow.Table.from_batches(self._batches, schema=self._schema)
            self._writer.write_table(table, row_group_size=len(table))
        self._batches, self._cells = [], 0


def _float_form(values: NDArray[np.float64]) -> str:
    """A conversion whose text reads back the same, and as a float, for each of the values.

    Event files store 32-bit floats, which nine digits identify and which are written in half
    the time of the sixteen or more that their 64-bit form has. Whole numbers keep their
    ``.0``: readers that guess a column's type by its first rows need it.
    """
    whole = np.floor(values) == values
    if not whole.any() and np.array_equal(values.astype(np.float32), values, equal_nan=True):
        return "%.9g"
    return "%r"


def _members(tag: str, values: NDArray[np.float64], present: NDArray[np.bool_]) -> list[str]:
    """Key and value of each row, or nothing where there is no value."""
    key = f"{json.dumps(tag, ensure_ascii=False)}: "
    form = key.replace("%", "%%") + _float_form(values)
    members = list(map(form.__mod__, values.tolist()))
    for index in np.flatnonzero(~(present & np.isfinite(values))).tolist():
        members[index] = key + json.dumps(_plain(values[index])) if present[index] else ""
    return members


def _plain(value: float) -> float | str:
    """A number as JSON can hold it, spelt as in ``metrics.jsonl``."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _unit(tag: str) -> Mapping[str, str] | None:
    try:
        return {"unit": MetricSchema().lookup(tag).unit.value}
    except UnknownMetricError:  # of a family that the run's environment declared
        return None
