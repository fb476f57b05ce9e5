"""Several processes at once, and processes that are killed between any two steps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

from drivetrain_api.timings.hardware import CpuFacts, HardwareRecord
from drivetrain_api.timings.model import StageRun
from drivetrain_api.timings.store import TimingsDirectory

WRITER: Final = Path(__file__).parent / "support/writer.py"
RECORDS: Final = 500
"""Of each of the two writers."""


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str], *, words: str | None = None) -> str:
    output, _ = process.communicate(words, timeout=280)
    assert process.returncode == 0
    return output


@pytest.mark.slow
def test_two_processes_lose_none_of_1000_records_and_a_third_never_reads_a_part(
    tmp_path: Path,
) -> None:
    home, stop = tmp_path / "home", tmp_path / "stop"
    home.mkdir()
    writers = [start("write", home, place, RECORDS) for place in (0, 1)]
    reader = start("read", home, stop)
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            told(writer)
        stop.touch()
        reads, seen = map(int, told(reader).split())
    finally:
        for process in (*writers, reader):
            process.kill()
            process.wait()
    assert reads > 1
    assert seen == 2 * RECORDS
    loaded = TimingsDirectory(home).load()
    found = {
        stage: [run.run_idx for run in content.runs]
        for stage, content in loaded.timings.root.items()
    }
    indices = range(RECORDS)
    assert found == {
        "writer_0": [2 * index for index in indices if index % 2 == 0],
        "writer_1": [2 * index + 1 for index in indices if index % 2 == 0],
        "evaluation": [2 * index + place for index in indices if index % 2 for place in (0, 1)],
    }
    threads = {record.cpu.logical_threads for record in loaded.hardware.hardware.values()}
    assert threads == set(range(1, 33))
    assert [entry.name for entry in home.iterdir() if entry.name.endswith(".tmp")] == []


HERE: Final = HardwareRecord(cpu=CpuFacts(logical_threads=2))
THERE: Final = HardwareRecord(cpu=CpuFacts(logical_threads=64))
STEPS: Final = frozenset({"open", "flock", "write", "flush", "fsync", "replace", "close", "unlink"})


class Killer:
    """Ends this process by SIGKILL before its n-th step on files."""

    def __init__(self, step: int) -> None:
        self._left = step

    def __call__(self, _: FrameType, event: str, function: object) -> None:
        if event == "c_call" and getattr(function, "__name__", "") in STEPS:
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


def killed_at(directory: TimingsDirectory, step: int) -> bool:
    """Record in a child that is killed at a step; whether it was, and did not end by itself."""
    child = os.fork()
    if child == 0:
        sys.setprofile(Killer(step))
        directory.record("sac_train", StageRun(seconds=2.0, run_idx=1), THERE)
        sys.setprofile(None)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_a_kill_between_any_two_steps_keeps_what_was_complete(tmp_path: Path) -> None:
    """The new record is there or not; what was before it is, and the next writer goes on."""
    step, outcomes = 0, []
    while True:
        directory = TimingsDirectory(tmp_path / str(step), lock_patience=5)
        directory.record("sac_train", StageRun(seconds=1.0, run_idx=0), HERE)
        ended_early = killed_at(directory, step)
        loaded = directory.load()
        runs = loaded.timings.root["sac_train"].runs
        assert runs[0] == StageRun(seconds=1.0, run_idx=0, hardware_id=HERE.hardware_id)
        assert {run.hardware_id for run in runs} <= set(loaded.hardware.hardware)
        outcomes.append(len(runs))
        directory.record("checkpoint_save", StageRun(seconds=0.5, run_idx=0), HERE)
        assert [entry.name for entry in directory.path.glob(".*.json.*.tmp")] == []
        if not ended_early:
            break
        step += 1
    assert outcomes == sorted(outcomes), "a later kill lost what an earlier one kept"
    assert set(outcomes) == {1, 2}
    assert step >= 16, "each file is locked, opened, written, flushed, replaced and closed"


def test_a_draft_that_is_not_ours_to_remove_stops_nobody(tmp_path: Path) -> None:
    draft = tmp_path / ".timings.json.1-ab.tmp"
    draft.mkdir()  # not even root may unlink it
    TimingsDirectory(tmp_path).record("sac_train", StageRun(seconds=1.0))
    assert list(TimingsDirectory(tmp_path).load().timings.root) == ["sac_train"]
    assert draft.exists()
