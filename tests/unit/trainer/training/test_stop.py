from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from drivetrain_trainer.training.stop import StopReason, StopSignal


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
