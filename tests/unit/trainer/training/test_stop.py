from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from drivetrain_api.errors import SpecError
from drivetrain_trainer.training.stop import StopReason, StopSignal, soak_seconds


@pytest.fixture
def handlers_restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("handlers_restored")
def test_a_signal_is_remembered_and_ends_nothing_by_itself(number: signal.Signals) -> None:
    stop = StopSignal()
    stop.install()
    assert not stop.requested
    os.kill(os.getpid(), number)
    assert stop.requested


def test_completion_outranks_a_signal() -> None:
    assert max(StopReason.SIGNAL, StopReason.DONE) is StopReason.DONE
    assert [reason for reason in StopReason if reason.complete] == [
        StopReason.TARGET,
        StopReason.DONE,
    ]


def test_a_run_that_trained_long_enough_is_done_and_a_signal_is_still_one() -> None:
    stop = StopSignal()
    assert (stop.wanted, stop.reason()) == (False, StopReason.NONE)
    stop.finish_after(3600.0)
    assert (stop.wanted, stop.finished) == (False, False)
    stop.finish_after(0.0)
    assert (stop.wanted, stop.requested, stop.reason()) == (True, False, StopReason.DONE)
    stop.interrupt.set()
    assert (stop.wanted, stop.reason()) == (True, StopReason.SIGNAL)


@pytest.mark.parametrize(("text", "seconds"), [("", None), ("90", 90.0), ("0.5", 0.5)])
def test_the_length_of_a_soak_is_read_from_the_environment(
    text: str, seconds: float | None
) -> None:
    assert soak_seconds({"DRIVETRAIN_SOAK_SECONDS": text}) == seconds


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "1e400"])
def test_a_length_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="DRIVETRAIN_SOAK_SECONDS: must be a positive number"):
        soak_seconds({"DRIVETRAIN_SOAK_SECONDS": text})
