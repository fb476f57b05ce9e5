"""What each metric backend holds of a run, read by readers that are not the project's own."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
from event_files import event_rows
from wandb_file import read_offline_run

Rows = list[tuple[int, dict[str, float]]]
"""Step and values of each report, as they were written."""
_OF_CLIENT = ("_step", "_runtime", "_timestamp")


@dataclass(frozen=True)
class Attempt:
    """Reports of one attempt in each backend."""

    start: int
    """Environment steps at which it went on."""
    tensorboard: Rows
    wandb: Rows
    jsonl: Rows


def attempts_of(directory: Path) -> list[Attempt]:
    """Of a run directory that has all three backends."""
    events = [event_rows(path) for path in sorted(directory.glob("events.out.tfevents.*"))]
    offline = sorted(directory.glob("wandb/offline-run-*/*.wandb"))
    histories = [read_offline_run(path).history for path in offline]
    wandb = [
        [
            (
                int(row["env_steps"]),
                {
                    tag: float(value)
                    for tag, value in row.items()
                    if tag not in (*_OF_CLIENT, "env_steps")
                },
            )
            for row in history
        ]
        for history in histories
    ]
    lines = _lines_of(directory / "metrics.jsonl")
    return [
        Attempt(start, *rows)
        for (start, jsonl), *rest in zip(lines, events, wandb, strict=True)
        for rows in [(*rest, jsonl)]
    ]


def _lines_of(path: Path) -> list[tuple[int, Rows]]:
    """Start and reports of each attempt; a line that a kill cut is left out."""
    found: list[tuple[int, Rows]] = []
    for line in path.read_text().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "start_env_steps" in entry:
            found.append((entry["start_env_steps"], []))
        else:
            values = {tag: float(value) for tag, value in entry["values"].items()}
            found[-1][1].append((entry["step"], values))
    return found


def assert_equal(attempt: Attempt, *, cut: bool = False) -> None:
    """The same reports with the same tags and values in all three, in the same order.

    TensorBoard holds float32, the others all of a float64. After a kill (`cut`) each may have
    ended at another report.
    """
    backends = (attempt.jsonl, attempt.wandb, attempt.tensorboard)
    if not cut:
        assert len({len(rows) for rows in backends}) == 1, [len(rows) for rows in backends]
    for jsonl, wandb, event in zip(*backends, strict=not cut):
        assert jsonl[0] == wandb[0] == event[0]
        assert jsonl[1].keys() == wandb[1].keys() == event[1].keys()
        for tag, value in jsonl[1].items():
            np.testing.assert_equal(wandb[1][tag], value, tag)
            np.testing.assert_equal(np.float32(event[1][tag]), np.float32(value), tag)


def merged(attempts: list[Attempt]) -> dict[int, dict[str, float]]:
    """Step -> values that hold at last: what an attempt went back over is superseded."""
    found: dict[int, dict[str, float]] = {}
    for attempt in attempts:
        found = {step: values for step, values in found.items() if step <= attempt.start}
        for step, values in attempt.tensorboard:
            found.setdefault(step, {}).update(values)
    return dict(sorted(found.items()))


def table_of(path: Path) -> dict[int, dict[str, float]]:
    """Step -> values of a table that ``drivetrain extract`` wrote."""
    rows: list[dict[str, Any]]
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    elif path.suffix == ".json":
        rows = json.loads(path.read_text())
    else:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    return {
        int(row["step"]): {
            tag: float(np.float32(value))
            for tag, value in row.items()
            if tag not in ("step", "wall_time") and value not in (None, "")
        }
        for row in rows
    }
