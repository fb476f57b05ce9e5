"""``metrics.jsonl`` in the run directory: a header an attempt, then one object a report.

The first line of each attempt is a header::

    {"metric_schema_version": 1, "attempt": 1, "start_env_steps": 0, "run": "...", ...}

Every other line is a report, with its step (environment steps over all ranks), iteration and
wall time (seconds since the epoch)::

    {"step": 640, "iteration": 10, "wall_time": 1767323045.1, "values": {"Loss/actor": -1.5}}

Values that JSON cannot hold stand as the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``,
which Python's and JavaScript's number parsers take. Tables, where there are any, follow under
``tables``: ``{"name": {"columns": [...], "rows": [[...]]}}``.

A later attempt appends; what earlier ones logged beyond its ``start_env_steps`` is superseded
by it. A line that a killed process left unfinished is ended by the next attempt's header, so
that a reader loses that line alone.
"""

from __future__ import annotations

import json
import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivetrain_api.metrics import METRIC_SCHEMA_VERSION
from drivetrain_trainer.telemetry.backends.append_file import AppendFile
from drivetrain_trainer.telemetry.backends.base import BackendCapabilities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_trainer.telemetry.backends.base import BackendContext
    from drivetrain_trainer.telemetry.record import Cell, Record

FILE_NAME: Final = "metrics.jsonl"
"""In the run directory."""


def make(context: BackendContext) -> JsonlBackend:
    """The backend of a run."""
    return JsonlBackend(context)


class JsonlBackend:
    """One line a report, each handed to the operating system as a whole."""

    name = "jsonl"
    capabilities = BackendCapabilities(tables=True)
    details: Mapping[str, str] = MappingProxyType({})

    def __init__(self, context: BackendContext) -> None:
        self._path = context.directory / FILE_NAME
        self._header = {
            "metric_schema_version": METRIC_SCHEMA_VERSION,
            "attempt": context.attempt,
            "start_env_steps": context.start_env_steps,
            "run": context.facts.run_name,
            "algo": context.facts.algo,
            "task": context.facts.task,
        }
        self._file: AppendFile | None = None

    def open(self) -> None:
        """Create the file, or go on in it; write this attempt's header.

        Raises:
            OSError: where the directory cannot be written.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = AppendFile.extend(self._path)
        torn = file.last_byte() not in (b"", b"\n")
        file.append((b"\n" if torn else b"") + _line(self._header))
        self._file = file

    def write(self, record: Record) -> None:
        """Append the record's line."""
        entry: dict[str, object] = {
            "step": record.env_steps,
            "iteration": record.iteration,
            "wall_time": record.wall_time,
            "values": {tag: encoded(value) for tag, value in record.values.items()},
        }
        if record.tables:
            entry["tables"] = {
                name: {
                    "columns": table.columns,
                    "rows": [[encoded(cell) for cell in row] for row in table.rows],
                }
                for name, table in record.tables.items()
            }
        self._opened.append(_line(entry))

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    @property
    def _opened(self) -> AppendFile:
        if self._file is None:
            raise RuntimeError("JsonlBackend is used before open()")
        return self._file


def encoded(value: Cell) -> Cell:
    """A value as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def _line(entry: Mapping[str, object]) -> bytes:
    return json.dumps(entry, allow_nan=False, separators=(",", ":")).encode() + b"\n"
