from __future__ import annotations

import threading
import time

from drivetrain_trainer.telemetry.terminal.clock import REDRAW_S, Clock


def test_the_panel_is_redrawn_at_two_hertz() -> None:
    assert REDRAW_S == 0.5


def test_ticks_come_at_once_and_then_each_period() -> None:
    times: list[float] = []
    enough = threading.Event()

    def tick() -> bool:
        times.append(time.monotonic())
        if len(times) == 5:
            enough.set()
        return True

    clock = Clock(tick, period_s=0.05, name="test")
    started = time.monotonic()
    clock.start()
    assert enough.wait(10)
    assert clock.stop()
    assert times[0] - started < 0.05
    assert times[4] - times[0] >= 0.15


def test_a_slow_tick_leaves_out_the_ones_it_missed() -> None:
    times: list[float] = []
    enough = threading.Event()

    def tick() -> bool:
        times.append(time.monotonic())
        if len(times) == 1:
            time.sleep(0.25)
        if len(times) == 3:
            enough.set()
        return True

    clock = Clock(tick, period_s=0.1, name="test")
    clock.start()
    assert enough.wait(10)
    clock.stop()
    assert times[1] - times[0] >= 0.29
    assert times[2] - times[1] >= 0.05


def test_a_tick_ends_the_clock_by_returning_false() -> None:
    calls: list[int] = []
    clock = Clock(lambda: bool(calls.append(1)), period_s=0.001, name="test")
    clock.start()
    clock._thread.join(10)
    assert calls == [1]
    assert clock.stop()


def test_stop_tells_of_a_tick_that_hangs() -> None:
    gate, entered = threading.Event(), threading.Event()

    def tick() -> bool:
        entered.set()
        return gate.wait(30)

    clock = Clock(tick, period_s=0.01, name="test")
    clock.start()
    assert entered.wait(10)
    assert not clock.stop(timeout_s=0.01)
    gate.set()
    assert clock.stop(timeout_s=10)


def test_a_clock_that_never_started_stops() -> None:
    assert Clock(lambda: True, period_s=1, name="test").stop()
