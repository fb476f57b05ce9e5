"""Event files and run directories made by hand, for tests of what reads them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import google_crc32c
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog

HEAD = Event(wall_time=1.0, file_version="brain.Event:2")
WALL = 1_700_000_000.0


def masked(data: bytes) -> int:
    """The checksum of record files, written down anew from its definition."""
    checksum = google_crc32c.value(data)
    return ((checksum >> 15 | checksum << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def record(payload: bytes) -> bytes:
    header = struct.pack("<Q", len(payload))
    return b"".join(
        (
            header,
            struct.pack("<I", masked(header)),
            payload,
            struct.pack("<I", masked(payload)),
        )
    )


def report(step: int, values: Mapping[str, float], wall_time: float | None = None) -> Event:
    event = Event(wall_time=WALL + step if wall_time is None else wall_time, step=step)
    for tag, value in values.items():
        event.summary.value.add(tag=tag, simple_value=value)
    return event


def restart(step: int) -> Event:
    return Event(wall_time=WALL, step=step, session_log=SessionLog(status=SessionLog.START))


def write_events(path: Path, events: Iterable[Event]) -> Path:
    payloads = [event.SerializeToString() for event in (HEAD, *events)]
    path.write_bytes(b"".join(map(record, payloads)))
    return path


def event_path(folder: Path, number: int = 1) -> Path:
    return folder / f"events.out.tfevents.{1_700_000_000 + number}.host.{number}"


def make_run(
    folder: Path,
    events: Iterable[Event] | None = None,
    *,
    summary: Mapping[str, object] | None = None,
) -> Path:
    """A run directory with one event file and, if not None, a summary."""
    folder.mkdir(parents=True, exist_ok=True)
    if events is not None:
        write_events(event_path(folder), events)
    if summary is not None:
        (folder / "run_summary.json").write_text(json.dumps(summary))
    return folder


STAMPED = {
    "status": "running",
    "algo": "sac",
    "task": "half_cheetah",
    "sim_backend": "mujoco",
    "log_dir": "logs/sac/half_cheetah/run",
    "seeds": {"run": 1, "algo": 1, "env": 1},
    "start_time_utc": "2026-03-09T18:30:00Z",
    "metric_schema_version": 1,
}
"""The summary of a run that has just begun."""


def event_rows(path: Path) -> list[tuple[int, dict[str, float]]]:
    """Step and values of every event, read by TensorBoard's own reader."""
    rows = []
    for event in EventFileLoader(str(path)).Load():
        values = {v.tag: v.tensor.float_val[0] for v in event.summary.value}
        if values:
            rows.append((event.step, values))
    return rows
