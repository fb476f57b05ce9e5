"""Reads the file of a Weights & Biases run back: what an offline run holds.

Seven bytes of header, then the log format of LevelDB (blocks of 32 KiB, records in fragments)
with a ``wandb_internal_pb2.Record`` in each record.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK = 32_768
FRAGMENT_HEADER = 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class OfflineRun:
    """What the records of one file say."""

    run_id: str = ""
    project: str = ""
    entity: str = ""
    display_name: str = ""
    group: str = ""
    notes: str = ""
    tags: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    step_metrics: dict[str, str] = field(default_factory=dict)
    """Name or pattern of a metric -> the metric that is its axis."""
    exit_code: int | None = None


def read_offline_run(path: Path) -> OfflineRun:
    """All that the run's file holds; a torn end is left out."""
    from wandb.proto import wandb_internal_pb2 as pb  # noqa: PLC0415 - slow, few need it

    run = OfflineRun()
    for data in records(path.read_bytes()):
        record = pb.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            _note_run(run, record.run)
        elif kind == "history":
            row = {item.key or "/".join(item.nested_key): item for item in record.history.item}
            run.history.append({key: json.loads(item.value_json) for key, item in row.items()})
        elif kind == "metric":
            name = record.metric.name or record.metric.glob_name
            if record.metric.step_metric:
                run.step_metrics[name] = record.metric.step_metric
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
    return run


def _note_run(run: OfflineRun, record: Any) -> None:
    run.run_id, run.project, run.entity = record.run_id, record.project, record.entity
    run.display_name, run.group, run.notes = record.display_name, record.run_group, record.notes
    run.tags = tuple(record.tags)
    run.config |= {item.key: json.loads(item.value_json) for item in record.config.update}


def records(data: bytes) -> Iterator[bytes]:
    """Whole records in order."""
    assert data[:4] == b":W&B", "not a file of Weights & Biases"
    at, parts = 7, b""
    while at + FRAGMENT_HEADER <= len(data):
        left = BLOCK - at % BLOCK
        if left < FRAGMENT_HEADER:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        at += FRAGMENT_HEADER
        if kind == 0 or at + length > len(data):
            return
        parts = (b"" if kind in (FULL, FIRST) else parts) + data[at : at + length]
        at += length
        if kind in (FULL, LAST):
            yield parts
