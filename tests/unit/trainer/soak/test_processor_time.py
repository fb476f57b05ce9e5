"""What a run got of the processors: by figures of our own, and by the kernel's."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drivetrain_trainer.soak.processor_time import NOTHING_USED, ProcessorMeter, ProcessorTime

SPIN = "import os\nos.sched_setaffinity(0, {%d})\nprint(flush=True)\nwhile True: pass"


@pytest.mark.parametrize(
    ("time_of", "share", "counted"),
    [
        (ProcessorTime(10.0, 0.0), 1.0, 10.0),  # alone on the machine
        (ProcessorTime(5.0, 5.0), 0.5, 5.0),  # one neighbour beside it
        (ProcessorTime(10.0, 30.0), 0.25, 2.5),  # four threads on one processor
        (ProcessorTime(0.01, 0.09), 0.1, 9.91),  # hangs; its idle threads wait to wake
        (ProcessorTime(0.0, 0.0), None, 10.0),  # stopped: it neither runs nor waits
        (ProcessorTime(0.0, 9.0), None, 10.0),
        (ProcessorTime(8.0, 0.0, 0.25), 0.75, 7.5),  # the host took a quarter
        (ProcessorTime(0.001, 100.0), 1e-5, 1.0),  # no excuse lasts longer than tenfold
    ],
)
def test_a_second_counts_as_far_as_the_run_was_let(
    time_of: ProcessorTime, share: float | None, counted: float
) -> None:
    assert time_of.share == (None if share is None else pytest.approx(share, rel=1e-3))
    assert time_of.counted(10.0) == pytest.approx(counted)


def test_times_add_up_with_what_was_stolen_weighted() -> None:
    both = ProcessorTime(1.0, 2.0, 0.0).then(ProcessorTime(4.0, 2.0, 0.3))
    assert (both.served, both.waited) == (5.0, 4.0)
    assert both.stolen == pytest.approx(0.2)
    assert NOTHING_USED.then(NOTHING_USED) == NOTHING_USED


def kernel(
    root: Path, threads: dict[tuple[int, int], str], line: str = "cpu 10 0 10 80 0 0 0 0 0 0"
) -> None:
    (root / "stat").write_text(f"{line}\ncpu0 1 2\n")
    for old in root.glob("*/task/*/schedstat"):
        old.unlink()
    for (pid, thread), text in threads.items():
        folder = root / str(pid) / "task" / str(thread)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(text)


def test_differences_over_all_threads_come_out_and_an_id_may_be_used_again(tmp_path: Path) -> None:
    kernel(tmp_path, {(1, 1): "1000000000 500000000 9", (1, 2): "7000000000 0 1"})
    meter = ProcessorMeter(lambda: [1, 5], tmp_path)
    meter()
    kernel(
        tmp_path,
        {(1, 1): "3000000000 1500000000 9", (1, 2): "250000000 0 1", (5, 5): "0 250000000 1"},
        "cpu 40 0 10 100 10 0 0 10 0 0",
    )
    found = meter()
    assert (found.served, found.waited) == (2.25, 1.25)
    assert found.stolen == pytest.approx(10 / 40)


@pytest.mark.parametrize("text", ["", "1", "a b c"])
def test_a_kernel_that_does_not_tell_excuses_nothing(tmp_path: Path, text: str) -> None:
    kernel(tmp_path, {(1, 1): text}, "cpu")
    meter = ProcessorMeter(lambda: [1, 2], tmp_path)
    assert meter() == NOTHING_USED
    assert ProcessorMeter(lambda: [1], tmp_path / "nowhere")() == NOTHING_USED


@contextmanager
def spinning(processor: int) -> Iterator[int]:
    """A process that wants all of one processor."""
    command = [sys.executable, "-c", SPIN % processor]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_a_neighbour_is_seen_and_a_stopped_run_waits_for_nothing() -> None:
    processor = min(os.sched_getaffinity(0))
    with spinning(processor) as ours:
        meter = ProcessorMeter(lambda: [ours])
        meter()
        used = NOTHING_USED
        with spinning(processor):
            deadline = time.monotonic() + 60
            while used.waited < 0.2:
                assert time.monotonic() < deadline
                time.sleep(0.05)
                used = used.then(meter())
        assert used.share is not None
        assert used.share < 0.9
        os.kill(ours, signal.SIGSTOP)
        while Path(f"/proc/{ours}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        meter()
        time.sleep(0.2)
        stopped = meter()
        assert (stopped.served, stopped.waited) == (0.0, 0.0)
        assert math.isclose(stopped.counted(5.0), 5.0)
