from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest
from structlog.testing import capture_logs

from drivetrain_trainer.telemetry.backends.base import BackendCapabilities
from drivetrain_trainer.telemetry.backends.writer import BackendHealth, BackendWriter
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
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.steps: list[int] = []
        self.flushed = threading.Event()
        self.closed = 0

    def open(self) -> None:
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
