"""How fast a large event directory becomes a table, and in how much memory."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tests.bench.result import Result, against
from tests.support.event_files import STAMPED

from drivetrain_api.metrics import METRICS
from drivetrain_trainer.telemetry.backends.record_frame import framed

MEGABYTE = 1_000_000
RUN_BYTES = 1_000 * MEGABYTE
PEER_BYTES = 20 * MEGABYTE
"""Of the same kind: TensorBoard's own reader would take ten minutes for the whole."""
SPEED_LIMIT = 50.0
MEMORY_LIMIT = 300.0
ROUNDS = 3
ATTEMPTS = 3
FIRST_STEP = 1 << 21
STEPS_A_REPORT = 320
TAGS = tuple(METRICS)[:56]
"""As many as a SAC run logs."""


@dataclass(frozen=True)
class Cost:
    """Of one extraction."""

    speed: float
    """MB of event files a second of processor time, the start of the process included."""
    memory: float
    """Greatest resident memory, MB."""


def measure() -> list[Result]:
    """The command on a GB, and TensorBoard's reader on a part of it, from a warm file cache.

    Speeds are by processor time, so that they hold where others use the machine.
    """
    with event_directory(RUN_BYTES) as folder, event_directory(PEER_BYTES) as small:
        extracted("csv", folder)
        results: list[Result] = []
        peers = [accumulated(small) for _ in range(ROUNDS)]
        for form in ("csv", "parquet"):
            costs = [extracted(form, folder) for _ in range(ROUNDS)]
            speeds = [cost.speed for cost in costs]
            what = f"MB of events a CPU second to {form.upper()}, 1 GB, {len(TAGS)} tags a report"
            results += [
                against(
                    f"extract_{form}",
                    what,
                    speeds,
                    [SPEED_LIMIT],
                    reference_name="limit",
                    target=1.0,
                ),
                against(
                    f"extract_{form}_tensorboard",
                    f"the same beside EventAccumulator on {PEER_BYTES // MEGABYTE} MB",
                    speeds,
                    peers,
                    reference_name="tensorboard 2.21, reading alone",
                    target=1.0,
                ),
                against(
                    f"extract_{form}_memory",
                    "MB resident at most",
                    [cost.memory for cost in costs],
                    [MEMORY_LIMIT],
                    reference_name="limit",
                    target=1.0,
                    better="lower",
                ),
            ]
        return results


_MEASURED = """
import sys, time
from drivetrain_trainer.cli.extract import extract
extract.main(sys.argv[1:], standalone_mode=False)
with open("/proc/self/status") as status:
    (peak,) = (line.split()[1] for line in status if line.startswith("VmHWM"))
print(time.process_time(), int(peak) * 1024)
"""
"""The command, then the processor time and the greatest resident memory of its process."""


def extracted(form: str, folder: Path) -> Cost:
    """The command in a process of its own."""
    command = [sys.executable, "-c", _MEASURED, str(folder), "--format", form]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak = done.stdout.split()[-2:]
    size = sum(path.stat().st_size for path in folder.glob("events.*"))
    return Cost(size / MEGABYTE / float(seconds), int(peak) / MEGABYTE)


def accumulated(folder: Path) -> float:
    """MB/s of TensorBoard's reader, which keeps every scalar and writes nothing."""
    size = sum(path.stat().st_size for path in folder.glob("events.*"))
    began = time.process_time()
    accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    accumulator.Reload()
    assert len(accumulator.Scalars(TAGS[0]))
    return size / MEGABYTE / (time.process_time() - began)


@contextmanager
def event_directory(size: int) -> Iterator[Path]:
    """A stamped run of three attempts, each going back a little behind the one before."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run_summary.json").write_text(json.dumps(STAMPED))
        step = FIRST_STEP
        for attempt in range(ATTEMPTS):
            path = folder / f"events.out.tfevents.{1_700_000_000 + attempt}.machine"
            step = _write_attempt(path, attempt, step, size // ATTEMPTS)
        yield folder


def _write_attempt(path: Path, attempt: int, step: int, size: int) -> int:
    """Write one file; gives the step at which the next attempt goes on."""
    rng = np.random.default_rng(attempt)
    template = Event(wall_time=1.0, step=step)
    for tag in TAGS:
        template.summary.value.add(tag=tag, simple_value=1.0)
    payload = bytearray(template.SerializeToString())
    places = _places(bytes(payload))
    with path.open("xb") as file:
        file.write(framed(Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString()))
        start = Event(wall_time=1.0, step=step, session_log=SessionLog(status=SessionLog.START))
        if attempt:
            file.write(framed(start.SerializeToString()))
        while file.tell() < size:
            values = rng.normal(size=len(TAGS)).astype("<f4").tobytes()
            payload[1:9] = struct.pack("<d", 1.7e9 + step * 1e-3)
            payload[10:14] = bytes(
                (step >> 7 * i) & 0x7F | (0x80 if i < 3 else 0) for i in range(4)
            )
            for index, place in enumerate(places):
                payload[place : place + 4] = values[4 * index : 4 * index + 4]
            file.write(framed(bytes(payload)))
            step += STEPS_A_REPORT
    assert step < 1 << 28
    return step - 100 * STEPS_A_REPORT


def _places(payload: bytes) -> list[int]:
    """Offsets of the values, each after its tag and key."""
    return [payload.index(tag.encode() + b"\x15") + len(tag) + 1 for tag in TAGS]
