"""Scalars of ``metrics.jsonl``, in the same pieces as those of event files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from drivetrain_trainer.analysis.events import Block, Piece, Restart
from drivetrain_trainer.analysis.records import PIECE_BYTES, RECORD_LIMIT
from drivetrain_trainer.analysis.schema_check import STAMP, SchemaError, check_version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TOLD: Final = 20
_STEP_LIMIT: Final = 2**63 - 1
_SPELT: Final = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}

Row = tuple[int, int, float, tuple[float, ...]]
"""Ordinal, step, wall time, values."""


class JsonlFile:
    """The reports and session starts of one file, in pieces; tables are left out."""

    def __init__(self, path: Path, *, limit: int | None = None) -> None:
        """Read `path` up to `limit` bytes, or to where it ends now."""
        self._path = path
        self._limit = path.stat().st_size if limit is None else limit
        self._headed = False
        self._line = 0
        self._damage: list[str] = []
        self.passed_over = 0
        """Values that are not scalars: none."""

    @property
    def damage(self) -> tuple[str, ...]:
        """What could not be read, for a person; complete once the file has been read."""
        return tuple(self._damage)

    def __iter__(self) -> Iterator[Piece]:
        """The pieces in order.

        Raises:
            SchemaError: a report without a header before it, or of another version.
            OSError: the file cannot be opened or read.
        """
        with self._path.open("rb") as file:
            while lines := self._lines(file):
                yield self._piece(lines, file.tell())

    def _lines(self, file: BinaryIO) -> list[bytes]:
        """The next whole lines within the limit; a last one that is unfinished is told."""
        lines: list[bytes] = []
        size = 0
        while size < PIECE_BYTES:
            line = file.readline(max(0, min(RECORD_LIMIT, self._limit - file.tell())))
            if not line:
                break
            size += len(line)
            if line.endswith(b"\n"):
                lines.append(line)
            elif file.tell() < self._limit:
                raise SchemaError(
                    f"{self._path}: line {self._line + len(lines) + 1} has more than "
                    f"{RECORD_LIMIT:,} bytes: no report has"
                )
            else:
                self._tell(self._line + len(lines) + 1, "it is unfinished: its writer was stopped")
        return lines

    def _piece(self, lines: list[bytes], end: int) -> Piece:
        found: dict[tuple[str, ...], list[Row]] = {}
        restarts: list[Restart] = []
        for line in lines:
            self._line += 1
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                self._tell(self._line, "no JSON: left out")
                continue
            if not isinstance(entry, dict):
                self._tell(self._line, "no report: left out")
            elif STAMP in entry:
                restarts += self._header(entry)
            else:
                self._report(entry, found)
        blocks = tuple(_block(tags, rows) for tags, rows in found.items())
        return Piece(blocks, tuple(restarts), end)

    def _header(self, entry: dict[str, object]) -> list[Restart]:
        """An attempt begins: what went beyond its start is void."""
        check_version(entry[STAMP], f"{self._path}: line {self._line}: {STAMP}")
        later, self._headed = self._headed, True
        start = entry.get("start_env_steps")
        if not later or type(start) is not int or abs(start) >= _STEP_LIMIT:
            return []
        return [Restart(self._line, start + 1)]

    def _report(self, entry: dict[str, object], found: dict[tuple[str, ...], list[Row]]) -> None:
        if not self._headed:
            raise SchemaError(
                f"{self._path}: line {self._line}: a report, and no line with {STAMP} before it: "
                "restore the file's beginning"
            )
        step, values = entry.get("step"), entry.get("values")
        if type(step) is not int or abs(step) > _STEP_LIMIT or not isinstance(values, dict):
            self._tell(self._line, "no report: left out")
            return
        try:
            wall_time = _number(entry.get("wall_time"))
            numbers = tuple(_number(value) for value in values.values())
        except (TypeError, KeyError, OverflowError):
            self._tell(self._line, "a value is no number: left out")
            return
        if numbers:
            found.setdefault(tuple(values), []).append((self._line, step, wall_time, numbers))

    def _tell(self, line: int, what: str) -> None:
        if len(self._damage) < _TOLD:
            self._damage.append(f"{self._path}: line {line}: {what}")


def _number(value: object) -> float:
    if type(value) is float or type(value) is int:
        return float(value)
    if isinstance(value, str):
        return _SPELT[value]
    raise TypeError(value)


def _block(tags: tuple[str, ...], rows: list[Row]) -> Block:
    ordinals, steps, wall_times, values = zip(*rows, strict=True)
    return Block(
        tags=tags,
        ordinals=np.array(ordinals, dtype=np.int64),
        steps=np.array(steps, dtype=np.int64),
        wall_times=np.array(wall_times, dtype=np.float64),
        values=np.array(values, dtype=np.float64),
    )
