from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from structlog.testing import capture_logs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from drivetrain_trainer.telemetry.backends import jsonl, tensorboard
from drivetrain_trainer.telemetry.backends.base import BackendCapabilities, BackendContext
from drivetrain_trainer.telemetry.backends.writer import BackendHealth, BackendWriter, close_all
from drivetrain_trainer.telemetry.record import Record

MakeRecord = Callable[..., Record]


class ScriptedBackend:
    """Fails or blocks where a test says so."""

    name = "scripted"
    capabilities = BackendCapabilities()
    details: Mapping[str, str] = MappingProxyType({})

    def __init__(self, *, fail_open: bool = False, fail_steps: tuple[int, ...] = ()) -> None:
        self.fail_open = fail_open
        self.fail_steps = fail_steps
        self.opening = threading.Event()
        self.opening.set()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.steps: list[int] = []
        self.flushed = threading.Event()
        self.closed = 0
        self.uploads: list[str] = []

    def open(self) -> None:
        self.opening.wait()
        if self.fail_open:
            raise PermissionError("read-only file system")

    def write(self, record: Record) -> None:
        self.entered.set()
        self.gate.wait()
        if record.env_steps in self.fail_steps:
            raise OSError("no space left on device")
        self.steps.append(record.env_steps)

    def flush(self) -> None:
        self.flushed.set()

    def close(self) -> None:
        self.closed += 1

    def upload(self, path: Path, name: str) -> None:
        if not path.exists():
            raise FileNotFoundError(name)
        self.uploads.append(name)


def test_everything_is_written_in_order(make_record: MakeRecord) -> None:
    backend = ScriptedBackend()
    writer = BackendWriter(backend)
    for step in range(100):
        writer.put(make_record(step))
    assert writer.close() == BackendHealth("scripted", written=100, lost=0, error=None)
    assert backend.steps == list(range(100))
    assert backend.closed == 1


def test_what_was_written_is_flushed_as_soon_as_nothing_waits(make_record: MakeRecord) -> None:
    backend = ScriptedBackend()
    writer = BackendWriter(backend)
    writer.put(make_record(1))
    assert backend.flushed.wait(10)
    assert backend.steps == [1]
    writer.close()


def test_a_failing_write_loses_its_record_alone_and_is_warned_of_once(
    make_record: MakeRecord,
) -> None:
    backend = ScriptedBackend(fail_steps=(1, 3))
    with capture_logs() as logs:
        writer = BackendWriter(backend)
        for step in range(5):
            writer.put(make_record(step))
        health = writer.close()
    assert backend.steps == [0, 2, 4]
    assert health == BackendHealth(
        "scripted", written=3, lost=2, error="write: OSError: no space left on device"
    )
    assert [entry["event"] for entry in logs] == [
        "metric backend failed; training goes on, later failures are only counted"
    ]


def test_a_backend_that_does_not_open_loses_everything(make_record: MakeRecord) -> None:
    backend = ScriptedBackend(fail_open=True)
    with capture_logs() as logs:
        writer = BackendWriter(backend)
        for step in range(3):
            writer.put(make_record(step))
        health = writer.close()
    assert health == BackendHealth(
        "scripted", written=0, lost=3, error="open: PermissionError: read-only file system"
    )
    assert backend.steps == []
    assert backend.closed == 0
    assert len(logs) == 1


def test_a_slow_backend_never_blocks_the_submitter(make_record: MakeRecord) -> None:
    backend = ScriptedBackend()
    backend.gate.clear()
    with capture_logs() as logs:
        writer = BackendWriter(backend, capacity=4)
        writer.put(make_record(0))
        assert backend.entered.wait(10)
        started = time.monotonic()
        for step in range(1, 11):
            writer.put(make_record(step))
        assert time.monotonic() - started < 5
        assert writer.health.lost == 6
        backend.gate.set()
        health = writer.close()
    assert backend.steps == [0, 1, 2, 3, 4]
    assert health == BackendHealth("scripted", written=5, lost=6, error=None)
    assert [entry["event"] for entry in logs] == [
        "metric backend is too slow; records are being lost"
    ]


@pytest.mark.parametrize("capacity", [2, 100])
def test_a_hanging_backend_is_given_up_at_the_end(make_record: MakeRecord, capacity: int) -> None:
    backend = ScriptedBackend()
    backend.gate.clear()
    with capture_logs() as logs:
        writer = BackendWriter(backend, capacity=capacity)
        writer.put(make_record(0))
        assert backend.entered.wait(10)
        for step in (1, 2):
            writer.put(make_record(step))
        health = writer.close(timeout_s=0.05)
    assert health == BackendHealth(
        "scripted", written=0, lost=3, error="did not finish within 0.05 s"
    )
    assert logs[-1]["event"] == "metric backend did not finish; its last records are lost"
    backend.gate.set()


def test_closing_twice_closes_the_backend_once(make_record: MakeRecord) -> None:
    backend = ScriptedBackend()
    writer = BackendWriter(backend)
    writer.put(make_record(1))
    assert writer.close() == writer.close()
    assert backend.closed == 1


def test_a_backend_that_takes_long_to_open_costs_nothing_and_loses_what_does_not_fit(
    make_record: MakeRecord,
) -> None:
    """A server that does not answer: records wait in the queue, and the run goes on."""
    backend = ScriptedBackend()
    backend.opening.clear()
    with capture_logs() as logs:
        writer = BackendWriter(backend, capacity=3)
        started = time.monotonic()
        for step in range(8):
            writer.put(make_record(step))
        assert time.monotonic() - started < 5
        backend.opening.set()
        health = writer.close()
    assert backend.steps == [0, 1, 2]
    assert health == BackendHealth("scripted", written=3, lost=5, error=None)
    assert len(logs) == 1


def test_one_that_never_opens_is_given_up_at_the_end(make_record: MakeRecord) -> None:
    backend = ScriptedBackend()
    backend.opening.clear()
    with capture_logs():
        writer = BackendWriter(backend)
        writer.put(make_record(0))
        started = time.monotonic()
        health = writer.close(timeout_s=0.05)
    assert time.monotonic() - started < 5
    assert health.lost == 1
    assert backend.closed == 0
    backend.opening.set()


def test_the_slowest_backend_bounds_the_end_and_not_their_sum(make_record: MakeRecord) -> None:
    backends = [ScriptedBackend() for _ in range(4)]
    for backend in backends:
        backend.capabilities = BackendCapabilities(close_seconds=0.5)
        backend.gate.clear()
    with capture_logs():
        writers = [BackendWriter(backend) for backend in backends]
        for writer in writers:
            writer.put(make_record(0))
        started = time.monotonic()
        close_all(writers)
        assert 0.4 < time.monotonic() - started < 1.5
    assert [writer.health.lost for writer in writers] == [1, 1, 1, 1]
    for backend in backends:
        backend.gate.set()


@pytest.mark.parametrize("failure", [ValueError, SystemExit, MemoryError])
def test_whatever_a_backend_raises_each_time_is_counted(
    make_record: MakeRecord, failure: type[BaseException]
) -> None:
    class Failing(ScriptedBackend):
        def write(self, record: Record) -> None:
            raise failure(f"step {record.env_steps}")

    with capture_logs() as logs:
        writer = BackendWriter(Failing())
        for step in range(3):
            writer.put(make_record(step))
        health = writer.close()
    assert (health.written, health.lost) == (0, 3)
    assert health.error == f"write: {failure.__name__}: step 0"
    assert len(logs) == 1


def test_errors_are_bounded_and_hold_no_secret(
    make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    monkeypatch.setenv("SHORT_TOKEN", "a")

    class Telling(ScriptedBackend):
        def write(self, record: Record) -> None:
            raise ConnectionError(
                f"refused key 0123456789abcdef at {record.env_steps}" + 5000 * "x"
            )

    with capture_logs() as logs:
        writer = BackendWriter(Telling())
        writer.put(make_record(0))
        health = writer.close()
    assert health.error is not None
    assert "refused key [WANDB_API_KEY] at 0xxx" in health.error
    assert len(health.error) < 1100
    assert "0123456789abcdef" not in repr(logs)


def test_details_are_read_at_any_time_and_may_fail(make_record: MakeRecord) -> None:
    class Detailed(ScriptedBackend):
        @property
        def details(self) -> Mapping[str, str]:  # type: ignore[override]  # of a class attribute
            if self.closed:
                raise RuntimeError("gone")
            return {"run_url": "https://example.org/run"}

    with capture_logs() as logs:
        writer = BackendWriter(Detailed())
        assert writer.health.details == {"run_url": "https://example.org/run"}
        writer.put(make_record(0))
        writer.close()
        assert writer.health.details == {}
    assert [entry["doing"] for entry in logs] == ["details"]


def test_files_go_after_the_records_before_them_and_may_fail(
    make_record: MakeRecord, tmp_path: Path
) -> None:
    video = tmp_path / "play_video.mp4"
    video.write_bytes(b"film")
    backend = ScriptedBackend()
    with capture_logs():
        writer = BackendWriter(backend)
        writer.put(make_record(0))
        writer.upload(video, "play_video.mp4")
        writer.upload(tmp_path / "absent.mp4", "absent.mp4")
        health = writer.close()
    assert backend.uploads == ["play_video.mp4"]
    assert health.error == "upload absent.mp4: FileNotFoundError: absent.mp4"
    assert (health.written, health.lost) == (1, 0)


def test_a_full_disk_loses_reports_and_nothing_of_the_files(
    context: BackendContext, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both files stay readable, and go on once there is space."""
    full = threading.Event()
    write_ = os.write

    def write_some(descriptor: int, data: bytes) -> int:
        if full.is_set() and threading.current_thread().name.startswith("backend-"):
            if len(data) < 20:
                raise OSError(errno.ENOSPC, "no space left on device")
            return write_(descriptor, data[:15])
        return write_(descriptor, data)

    monkeypatch.setattr(os, "write", write_some)
    with capture_logs() as logs:
        writers = [BackendWriter(tensorboard.make(context)), BackendWriter(jsonl.make(context))]
        for step, filled in ((1, False), (2, True), (3, True), (4, False)):
            _wait_until_idle(writers)
            full.set() if filled else full.clear()
            for writer in writers:
                writer.put(make_record(step, Loss__actor=float(step)))
        close_all(writers)
    for writer in writers:
        assert (writer.health.written, writer.health.lost) == (2, 2)
        assert "no space left on device" in (writer.health.error or "")
    assert len(logs) == 2, "each is warned of once"
    scalars = EventAccumulator(str(context.directory)).Reload().Scalars("Loss/actor")
    assert [(event.step, event.value) for event in scalars] == [(1, 1.0), (4, 4.0)]
    lines = (context.directory / jsonl.FILE_NAME).read_text().splitlines()
    assert [json.loads(line).get("step") for line in lines] == [None, 1, 4]


def _wait_until_idle(writers: list[BackendWriter]) -> None:
    deadline = time.monotonic() + 30
    for writer in writers:
        while writer.health.written + writer.health.lost < writer.submitted:
            assert time.monotonic() < deadline
            time.sleep(0.001)
