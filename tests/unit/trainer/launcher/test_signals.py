"""Signals wake the loop, and the first that asks to stop is remembered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from drivetrain_trainer.launcher.signals import STOP, StopSignals


@pytest.fixture
def signals() -> Iterator[StopSignals]:
    before = {number: signal.getsignal(number) for number in (*STOP, signal.SIGCHLD)}
    made = StopSignals()
    made.install()
    yield made
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)
    made._wake.close()
    made._woken.close()


@pytest.mark.parametrize("number", STOP)
def test_any_of_them_asks_to_stop_and_the_first_is_kept(
    signals: StopSignals, number: signal.Signals
) -> None:
    assert signals.requested is None
    os.kill(os.getpid(), number)
    os.kill(os.getpid(), signal.SIGTERM)
    assert signals.requested is number
    assert not signals.urgent


@pytest.mark.parametrize(
    ("sent", "urgent"),
    [
        ([signal.SIGINT], False),
        ([signal.SIGINT, signal.SIGINT], True),
        ([signal.SIGTERM, signal.SIGINT], True),
        ([signal.SIGINT, signal.SIGTERM], False),
        ([signal.SIGTERM, signal.SIGTERM], False),
    ],
)
def test_only_ctrl_c_after_a_stop_is_urgent(
    signals: StopSignals, sent: list[signal.Signals], urgent: bool
) -> None:
    for number in sent:
        os.kill(os.getpid(), number)
    assert signals.urgent is urgent


def test_a_signal_before_the_wait_is_not_slept_through(signals: StopSignals) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    began = time.monotonic()
    signals.wait(30)
    assert time.monotonic() - began < 10


def test_the_end_of_a_child_wakes(signals: StopSignals) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    began = time.monotonic()
    signals.wait(30)
    assert time.monotonic() - began < 20
    child.wait()
    assert signals.requested is None


def test_without_a_signal_it_waits_as_long_as_asked(signals: StopSignals) -> None:
    began = time.monotonic()
    signals.wait(0.05)
    signals.wait(-1)
    assert 0.05 <= time.monotonic() - began < 5


def test_a_thousand_signals_do_not_clog_it(signals: StopSignals) -> None:
    for _ in range(1000):
        os.kill(os.getpid(), signal.SIGHUP)
    signals.wait(30)
    began = time.monotonic()
    signals.wait(0.05)
    assert time.monotonic() - began >= 0.05


def test_handlers_are_there_before_anything_heavy_is_imported() -> None:
    script = """
        import sys
        import drivetrain_trainer.launcher.main
        heavy = {"pydantic", "torch", "structlog", "numpy"} & set(sys.modules)
        assert not heavy, heavy
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


def test_launching_imports_no_torch() -> None:
    script = """
        import sys
        import drivetrain_trainer.launcher.launch
        assert not {"torch", "numpy", "mujoco"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
