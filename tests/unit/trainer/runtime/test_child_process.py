from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from drivetrain_trainer.runtime.child_process import ChildProcess
from drivetrain_trainer.runtime.doorbell import Doorbell, wait
from drivetrain_trainer.runtime.faults import ChildFailedError, CollectorFailedError, FailureClass


def open_descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def test_a_child_talks_to_its_parent_and_ends_with_the_channel() -> None:
    with ChildProcess.spawn("children:echo", "echo") as child:
        child.channel.send("hello")
        assert child.receive() == ("hello", os.getpid())
        assert child.exitcode is None
        child.channel.close()
        assert child.wait(30.0)
        assert child.exitcode == 0


def test_what_a_child_finds_itself_to_be() -> None:
    with ChildProcess.spawn("children:describe", "child", preload=("colorsys",)) as child:
        found = child.receive()
        assert found == {
            "ignored": [signal.SIGINT, signal.SIGTERM],
            "blocked": [],
            "threads": "1",
            "preloaded": True,
            "path": tuple(sys.path),
        }
        assert child.wait(30.0)
        assert child.exitcode == 7


def test_a_child_leaves_the_stop_signals_to_its_parent_from_the_start() -> None:
    with ChildProcess.spawn("children:echo", "echo") as child:
        for _ in range(5):  # the interpreter has hardly begun
            os.kill(child.pid, signal.SIGTERM)
            os.kill(child.pid, signal.SIGINT)
        child.channel.send("still there?")
        assert child.receive() == ("still there?", os.getpid())
    assert child.exitcode == -signal.SIGKILL
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


@pytest.mark.parametrize(
    ("target", "error_type", "message"),
    [
        ("children:fail", "LookupError", "the wheel came off"),
        ("no_such_module:run", "ModuleNotFoundError", "no_such_module"),
        ("children:no_such_function", "AttributeError", "no_such_function"),
    ],
)
def test_an_exception_in_a_child_is_told_by_the_wait(
    target: str, error_type: str, message: str
) -> None:
    with ChildProcess.spawn(target, "collector", error=CollectorFailedError) as child:
        with pytest.raises(CollectorFailedError, match=f"{error_type}: .*{message}") as caught:
            wait(Doorbell(), child.peer, 30.0)
        assert caught.value.failure is not None
        assert caught.value.failure.error_type == error_type
        assert error_type in caught.value.failure.trace
        assert caught.value.exitcode == 1
        assert caught.value.classification is FailureClass.COLLECTOR


def test_a_killed_child_is_told_with_its_signal_within_milliseconds() -> None:
    with ChildProcess.spawn("children:echo", "echo") as child:
        child.channel.send("awake?")
        child.receive()
        os.kill(child.pid, signal.SIGKILL)
        killed = time.monotonic()
        with pytest.raises(ChildFailedError, match="killed by SIGKILL") as caught:
            wait(Doorbell(), child.peer, 30.0)
        waited = time.monotonic() - killed
        assert caught.value.signal == signal.SIGKILL
        assert caught.value.failure is None
    print(f"SIGKILL seen after {waited * 1e3:.2f} ms")
    assert waited < 2.0


def test_a_grandchild_does_not_outlive_a_killed_parent() -> None:
    with ChildProcess.spawn("children:parent_of_another", "parent") as child:
        grandchild = child.receive()
        assert isinstance(grandchild, int)
        watch = os.pidfd_open(grandchild)
        os.kill(child.pid, signal.SIGKILL)
        poller = select.poll()
        poller.register(watch, select.POLLIN)
        assert poller.poll(5_000)
        os.close(watch)


def test_closing_leaves_no_process_and_no_descriptor() -> None:
    with ChildProcess.spawn("children:echo", "warm up"):
        pass
    before = open_descriptors()
    with ChildProcess.spawn("children:echo", "echo") as child:
        pass
    child.close()
    assert open_descriptors() == before
    assert not Path(f"/proc/{child.pid}").exists()
    assert child.exitcode == -signal.SIGKILL
