"""A process that records into a directory as fast as it can, or reads it all the while.

Flushing is left out: what a flush guards against is a power cut, which other tests stand in
for; here it would only slow down the race that is wanted.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from drivetrain_api.timings.hardware import CpuFacts, HardwareRecord
from drivetrain_api.timings.model import StageRun
from drivetrain_api.timings.store import TimingsDirectory

SHARED = "evaluation"


def write(directory: TimingsDirectory, place: int, records: int) -> None:
    """Half of the records go to a stage of one's own, half to one that both write."""
    for index in range(records):
        hardware = HardwareRecord(cpu=CpuFacts(logical_threads=1 + 2 * (index % 16) + place))
        stage = SHARED if index % 2 else f"writer_{place}"
        run = StageRun(seconds=1.0, run_idx=2 * index + place, invocation="race")
        directory.record(stage, run, hardware)


def read(directory: TimingsDirectory, stop: Path) -> None:
    """Until `stop` is there; prints how often, and how many records were seen last."""
    reads, seen = 0, 0
    while True:
        last = stop.exists()
        for path in (directory.timings_path, directory.hardware_path):
            if path.exists():
                json.loads(path.read_bytes())
        loaded = directory.load()
        runs = [run for stage in loaded.timings.root.values() for run in stage.runs]
        assert {run.hardware_id for run in runs} <= set(loaded.hardware.hardware), "dangling id"
        assert len(runs) >= seen, f"{len(runs)} records where {seen} had been"
        reads, seen = reads + 1, len(runs)
        if last:
            print(reads, seen)
            return


def main() -> None:
    kind, folder, *arguments = sys.argv[1:]
    directory = TimingsDirectory(Path(folder), lock_patience=280)
    if kind == "read":
        read(directory, Path(arguments[0]))
        return
    os.fsync = lambda _: None
    print("ready", flush=True)
    sys.stdin.readline()
    write(directory, int(arguments[0]), int(arguments[1]))


if __name__ == "__main__":
    main()
