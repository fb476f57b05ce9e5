"""Device intervals with a device under the test's control."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from drivetrain_trainer.tracing import gpu
from drivetrain_trainer.tracing.gpu import GpuIntervals


@dataclass
class Mark:
    device: Device
    at_ns: int

    def query(self) -> bool:
        return self.at_ns <= self.device.reached_ns

    def elapsed_time(self, end_event: Mark, /) -> float:
        assert self.query()
        assert end_event.query()
        return (end_event.at_ns - self.at_ns) * 1e-6


@dataclass
class Device:
    """Marks pass once `reached_ns` is set beyond them; its clock is the host's, `skew_ns` off."""

    skew_ns: int = 5_000_000_000
    reached_ns: int = 0
    next_ns: list[int] = field(default_factory=list)
    anchors: int = 0

    def mark(self) -> Mark:
        return Mark(self, self.next_ns.pop(0))

    def idle_mark(self) -> Mark:
        self.anchors += 1
        now = time.perf_counter_ns() + self.skew_ns
        self.reached_ns = max(self.reached_ns, now)
        return Mark(self, now)


def test_an_interval_is_told_once_it_has_passed_on_the_hosts_clock() -> None:
    device = Device()
    intervals = GpuIntervals(device)
    now = time.perf_counter_ns()
    start, end = now + 10**9 + device.skew_ns, now + 10**9 + 3_000_000 + device.skew_ns
    device.next_ns = [start, end]
    begin = intervals.mark()
    intervals.complete("Replay H2D", "GPU replay stream", begin)
    assert list(intervals.resolve()) == []
    device.reached_ns = end
    (found,) = intervals.resolve()
    assert (found.name, found.track) == ("Replay H2D", "GPU replay stream")
    assert found.end_ns - found.start_ns == pytest.approx(3_000_000, abs=2)
    assert found.start_ns == pytest.approx(now + 10**9, abs=2_000_000), "within the anchor's width"
    assert list(intervals.resolve()) == []


def test_clocks_are_put_beside_each_other_anew_each_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Device()
    intervals = GpuIntervals(device)
    first = device.anchors
    list(intervals.resolve())
    assert device.anchors == first
    monkeypatch.setattr(gpu, "_ANCHOR_SECONDS", 0.0)
    list(intervals.resolve())
    assert device.anchors > first


def test_intervals_of_a_device_far_behind_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_PENDING", 2)
    device = Device()
    intervals = GpuIntervals(device)
    device.next_ns = [2**62] * 10
    for _ in range(4):
        intervals.complete("Learning", "GPU main stream", intervals.mark())
    assert intervals.take_lost() == 2
    assert intervals.take_lost() == 0


def test_a_tracer_shows_device_streams_as_threads(open_trace: Any) -> None:
    device = Device(skew_ns=0)
    tracer = open_trace(gpu=GpuIntervals(device))
    now = time.perf_counter_ns()
    device.next_ns = [now, now + 1000, now + 2000, now + 3000]
    device.reached_ns = now + 3000
    tracer.gpu_complete("Replay H2D", "GPU replay stream", tracer.gpu_mark())
    tracer.gpu_complete("Learning", "GPU main stream", tracer.gpu_mark())
    tracer.close()
    found = json.loads(tracer.path.read_text())
    named = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    spans = {e["name"]: named[e["tid"]] for e in found if e["ph"] == "X"}
    assert spans == {"Replay H2D": "GPU replay stream", "Learning": "GPU main stream"}


def test_a_driver_that_fails_ends_the_devices_part_alone(
    open_trace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(Device):
        broken = False

        def idle_mark(self) -> Mark:
            if self.broken:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            return super().idle_mark()

    device = Broken()
    intervals = GpuIntervals(device)
    intervals._anchor = gpu._Anchor(Mark(device, 0), 0)  # an old one: the next is due
    device.broken = True
    tracer = open_trace(gpu=intervals)
    tracer._flush()
    with tracer.span("Learning"):
        pass
    assert tracer.gpu_mark() is None
    tracer.close()
    assert "illegal memory access" in capsys.readouterr().out
    assert any(e["name"] == "Learning" for e in json.loads(tracer.path.read_text()))
