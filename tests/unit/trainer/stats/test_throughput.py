from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from drivetrain_trainer.stats import throughput
from drivetrain_trainer.stats.throughput import HostStopwatch, StreamStopwatch, ThroughputMeter

CPU = torch.device("cpu")


class Clock:
    """Nanoseconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def square(length: int) -> float:
    return float(length * length)


def without_scope(figures: dict[str, float]) -> dict[str, float]:
    return {key.removeprefix("train_perf/"): value for key, value in figures.items()}


def test_a_window_and_the_totals_by_hand(clock: Clock) -> None:
    meter = ThroughputMeter(CPU, estimator=square, stopwatch=HostStopwatch(clock))
    with meter.measure([3, 4]):
        clock.pass_seconds(2.0)
    clock.pass_seconds(100.0)  # a rollout between two calls
    with meter.measure([3]):
        clock.pass_seconds(0.5)
    # Tokens 3 + 4 + 3 in 2.5 s; FLOPs 9 + 16 + 9.
    assert without_scope(meter.export()) == {
        "tokens": 10.0,
        "seconds": 2.5,
        "tokens_per_second": 4.0,
        "estimated_flops": 34.0,
        "estimated_flops_per_second": 13.6,
        "total_tokens": 10.0,
        "total_seconds": 2.5,
        "cumulative_tokens_per_second": 4.0,
        "cumulative_estimated_flops_per_second": 13.6,
    }
    with meter.measure([10]):
        clock.pass_seconds(2.5)
    # Window 10 in 2.5 s, FLOPs 100; together 20 in 5 s, FLOPs 134.
    assert without_scope(meter.export()) == {
        "tokens": 10.0,
        "seconds": 2.5,
        "tokens_per_second": 4.0,
        "estimated_flops": 100.0,
        "estimated_flops_per_second": 40.0,
        "total_tokens": 20.0,
        "total_seconds": 5.0,
        "cumulative_tokens_per_second": 4.0,
        "cumulative_estimated_flops_per_second": pytest.approx(26.8),
    }


def test_without_an_estimator_tokens_and_time_stay(clock: Clock) -> None:
    meter = ThroughputMeter(CPU, stopwatch=HostStopwatch(clock))
    with meter.measure([8]):
        clock.pass_seconds(2.0)
    figures = without_scope(meter.export())
    assert not [name for name in figures if "flops" in name]
    assert (figures["tokens"], figures["tokens_per_second"]) == (8.0, 4.0)


def test_a_window_without_a_call_has_no_figures_of_its_own(clock: Clock) -> None:
    meter = ThroughputMeter(CPU, estimator=square, stopwatch=HostStopwatch(clock))
    assert meter.export() == {}
    with meter.measure([2]):
        clock.pass_seconds(1.0)
    meter.export()
    assert without_scope(meter.export()) == {
        "total_tokens": 2.0,
        "total_seconds": 1.0,
        "cumulative_tokens_per_second": 2.0,
        "cumulative_estimated_flops_per_second": 4.0,
    }


def test_a_call_that_raises_is_not_counted(clock: Clock) -> None:
    meter = ThroughputMeter(CPU, estimator=square, stopwatch=HostStopwatch(clock))
    with contextlib.suppress(ZeroDivisionError), meter.measure([8]):
        clock.pass_seconds(3.0)
        raise ZeroDivisionError
    assert meter.export() == {}
    with meter.measure([1]):
        clock.pass_seconds(0.5)
    figures = without_scope(meter.export())
    assert (figures["total_tokens"], figures["total_seconds"]) == (1.0, 0.5)


def test_the_usual_stopwatch_of_a_cpu_takes_its_wall_time() -> None:
    meter = ThroughputMeter(CPU)
    with meter.measure([1]):
        torch.randn(200, 200) @ torch.randn(200, 200)
    assert 0.0 < meter.export()["train_perf/seconds"] < 10.0


class StandInStream:
    """A stream that works off its queue when told to, and events on it."""

    def __init__(self) -> None:
        self.time_ms = 0.0
        self.synchronizations = 0
        self.events: list[StandInEvent] = []

    def passes(self, milliseconds: float) -> None:
        self.time_ms += milliseconds

    def synchronize(self, _device: object = None) -> None:
        self.synchronizations += 1
        for event in self.events:
            event.passed = True


class StandInEvent:
    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.passed = False
        self.at = 0.0

    def record(self, stream: StandInStream) -> None:
        self.at = stream.time_ms
        stream.events.append(self)

    def query(self) -> bool:
        return self.passed

    def elapsed_time(self, end: StandInEvent) -> float:
        assert self.passed
        assert end.passed
        return end.at - self.at


@contextmanager
def stand_in_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInStream]:
    stream = StandInStream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: stream)
    monkeypatch.setattr(torch.cuda, "Event", StandInEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", stream.synchronize)
    yield stream


def test_a_stream_is_waited_for_once_an_export(monkeypatch: pytest.MonkeyPatch) -> None:
    with stand_in_cuda(monkeypatch) as stream:
        meter = ThroughputMeter(torch.device("cuda"))
        for _ in range(3):
            with meter.measure([4]):
                stream.passes(500.0)
            stream.passes(1000.0)
        assert stream.synchronizations == 0
        figures = without_scope(meter.export())
        assert (figures["seconds"], figures["tokens_per_second"]) == (1.5, 8.0)
        assert stream.synchronizations == 1
        meter.export()
        assert stream.synchronizations == 1


def test_events_that_the_stream_passed_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "_PAIRS_KEPT", 4)
    with stand_in_cuda(monkeypatch) as stream:
        stopwatch = StreamStopwatch(torch.device("cuda"))
        for _ in range(10):
            with stopwatch.measure():
                stream.passes(1.0)
            for event in stream.events:
                event.passed = True
        assert len(stopwatch._pairs) < 4
        assert stopwatch.take() == pytest.approx(0.010)


@pytest.mark.gpu
def test_events_of_a_real_stream_time_the_work_and_not_its_submission() -> None:
    device = torch.device("cuda", 0)
    stopwatch = StreamStopwatch(device)
    with stopwatch.measure():
        torch.cuda._sleep(200_000_000)  # cycles: 0.05 to 0.3 s on what there is
    assert 0.02 < stopwatch.take() < 2.0
    assert stopwatch.take() == 0.0
