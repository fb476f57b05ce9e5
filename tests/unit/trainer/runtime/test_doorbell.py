from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from drivetrain_trainer.runtime.child_process import ChildProcess
from drivetrain_trainer.runtime.doorbell import Doorbell, Interrupt, Meanwhile, Peer, wait
from drivetrain_trainer.runtime.faults import PeerDiedError, StopRequestedError


@pytest.fixture
def this_process() -> Peer:
    return Peer(os.getpid(), "self")


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    with ChildProcess.spawn("children:echo", "echo") as process:
        yield process


def test_rings_are_counted_not_merged(this_process: Peer) -> None:
    bell = Doorbell()
    assert bell.collect() == 0
    bell.ring()
    bell.ring(3)
    assert wait(bell, this_process, 0.0) == 4
    assert bell.collect() == 0


def test_nothing_rung_is_zero_after_the_time(this_process: Peer) -> None:
    started = time.monotonic()
    assert wait(Doorbell(), this_process, 0.02) == 0
    assert time.monotonic() - started >= 0.02


def test_a_ring_ends_the_wait_at_once(this_process: Peer) -> None:
    bell = Doorbell()
    threading.Timer(0.01, bell.ring).start()
    assert wait(bell, this_process, 30.0) == 1


def test_a_killed_peer_ends_the_wait(child: ChildProcess) -> None:
    bell = Doorbell()
    peer = Peer(child.pid, "echo")
    assert peer.alive()
    killed = time.monotonic()
    threading.Timer(0.02, os.kill, (child.pid, signal.SIGKILL)).start()
    with pytest.raises(PeerDiedError, match=f"echo process {child.pid} died") as caught:
        wait(bell, peer, 30.0)
    assert time.monotonic() - killed < 2.0
    assert (caught.value.role, caught.value.pid) == ("echo", child.pid)
    assert not peer.alive()


def test_what_a_peer_rang_before_it_died_still_counts(child: ChildProcess) -> None:
    bell = Doorbell()
    peer = Peer(child.pid, "echo")
    child.kill()
    bell.ring()
    assert wait(bell, peer, 30.0) == 1
    with pytest.raises(PeerDiedError):
        wait(bell, peer, 30.0)


def test_an_interrupt_ends_this_wait_and_every_later_one(this_process: Peer) -> None:
    interrupt = Interrupt()
    assert not interrupt.is_set()
    threading.Timer(0.01, interrupt.set).start()
    for _ in range(2):
        with pytest.raises(StopRequestedError):
            wait(Doorbell(), this_process, 30.0, interrupt=interrupt)
    assert interrupt.is_set()


def test_a_signal_handler_may_set_the_interrupt(this_process: Peer) -> None:
    interrupt = Interrupt()
    before = signal.signal(signal.SIGUSR1, lambda *_: interrupt.set())
    try:
        main = threading.get_ident()
        threading.Timer(0.01, signal.pthread_kill, (main, signal.SIGUSR1)).start()
        with pytest.raises(StopRequestedError):
            wait(Doorbell(), this_process, 30.0, interrupt=interrupt)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_ring_that_is_there_wins_over_the_interrupt(this_process: Peer) -> None:
    interrupt, bell = Interrupt(), Doorbell()
    interrupt.set()
    bell.ring()
    assert wait(bell, this_process, 0.0, interrupt=interrupt) == 1


def test_work_is_done_meanwhile_and_may_ring_the_bell(this_process: Peer) -> None:
    bell, second = Doorbell(), Doorbell()
    done = []

    def work() -> None:
        done.append(second.collect())
        if len(done) == 3:
            bell.ring()
        else:
            second.ring()

    second.ring()
    assert wait(bell, this_process, 30.0, meanwhile=Meanwhile(second, work)) == 1
    assert done == [1, 1, 1]


def test_the_time_is_up_also_while_work_is_done(this_process: Peer) -> None:
    second = Doorbell()
    second.ring()  # and never collected: the wait is woken again and again
    assert wait(Doorbell(), this_process, 0.05, meanwhile=Meanwhile(second, lambda: None)) == 0


def test_a_process_that_is_not_there_is_no_peer(child: ChildProcess) -> None:
    child.kill()
    with pytest.raises(ProcessLookupError):
        Peer(child.pid, "gone")
