"""A reader bears with a writer that lives, however slowly, and with no other."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from drivetrain_trainer.runtime import sequence_lock
from drivetrain_trainer.runtime.child_process import ChildProcess
from drivetrain_trainer.runtime.doorbell import Peer
from drivetrain_trainer.runtime.faults import ChildFailedError, StaleTickError
from drivetrain_trainer.runtime.metrics_board import MetricsBoard
from drivetrain_trainer.runtime.sequence_lock import HEADER_WORDS, PATIENCE_S, Record
from drivetrain_trainer.runtime.shared_memory import CACHE_LINE, SharedMemory

SOON = 20.0
BODY = 8


class Clock:
    """Goes on by so many seconds at each look, and does something at some of them."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.looks = 0
        self._step = step
        self._then: dict[int, Callable[[], None]] = {}

    def at(self, look: int, do: Callable[[], None]) -> None:
        self._then[look] = do

    def monotonic(self) -> float:
        self.looks += 1
        self.now += self._step
        self._then.get(self.looks, lambda: None)()
        return self.now

    def sleep(self, seconds: float) -> None:
        assert 0.0 < seconds <= 0.01


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Clock]:
    def start(step: float) -> Clock:
        clock = Clock(step)
        monkeypatch.setattr(sequence_lock, "time", clock)
        return clock

    return start


@pytest.fixture
def record() -> Iterator[Record]:
    memory = SharedMemory.create(2 * CACHE_LINE, "record")
    record = Record(memory, 0, CACHE_LINE, BODY)
    assert CACHE_LINE == HEADER_WORDS * 8
    record.write(1, b"first")
    yield record
    memory.close()


def begin(record: Record) -> Callable[[], None]:
    """Stand still in the middle of a write; what is returned finishes it."""
    record._header[0] += 1

    def finish() -> None:
        record._header[0] -= 1
        record.write(2, b"second")

    return finish


def test_a_record_is_read_whole_and_once(record: Record) -> None:
    whole = record.read()
    assert whole is not None
    assert (whole.tick, bytes(whole.data)) == (1, b"first")
    assert record.read(whole.version) is None


def test_a_writer_without_a_processor_for_half_a_minute_is_borne_with(
    record: Record, slow: Callable[[float], Clock]
) -> None:
    clock = slow(PATIENCE_S / 10)
    clock.at(6, begin(record))
    whole = record.read(writer=Peer(os.getpid(), "writer"))
    assert whole is not None
    assert bytes(whole.data) == b"second"
    assert clock.now > PATIENCE_S / 2


@pytest.mark.parametrize("known", [True, False], ids=["whose process is known", "of any process"])
def test_a_writer_that_stands_still_is_given_up(
    record: Record, slow: Callable[[float], Clock], known: bool
) -> None:
    begin(record)
    clock = slow(PATIENCE_S / 4)
    with pytest.raises(StaleTickError, match=r"tick 1: waited 60\.0 s for a whole record"):
        record.read(writer=Peer(os.getpid(), "writer") if known else None)
    assert clock.looks == 6  # the first, four more of a quarter each, and the one after


def test_a_record_of_a_writer_that_is_over_is_not_waited_for(
    record: Record, slow: Callable[[float], Clock]
) -> None:
    begin(record)
    clock = slow(0.01)
    with pytest.raises(StaleTickError):
        record.read(patience_s=0.0)
    assert clock.now < 0.1


def test_a_reader_without_a_processor_looks_once_more(
    record: Record, slow: Callable[[float], Clock]
) -> None:
    """All the time passes between two looks of the reader; the writer was done within it."""
    clock = slow(10 * PATIENCE_S)
    clock.at(2, begin(record))
    whole = record.read()
    assert whole is not None
    assert bytes(whole.data) == b"second"


@pytest.fixture
def paused() -> Iterator[tuple[MetricsBoard, ChildProcess]]:
    """A process that stands still in the middle of its second report."""
    board = MetricsBoard.create()
    with ChildProcess.spawn("ring_children:pause_in_a_write", "writer") as writer:
        writer.channel.send(board)
        assert writer.receive() == "within", writer.failure
        yield board, writer


def test_a_writer_that_is_killed_in_a_write_is_told_at_once(
    paused: tuple[MetricsBoard, ChildProcess],
) -> None:
    board, writer = paused
    os.kill(writer.pid, signal.SIGKILL)
    with pytest.raises(ChildFailedError, match="killed by SIGKILL"):
        board.read(writer.peer)


def test_a_writer_that_is_stopped_in_a_write_is_stale_and_what_it_finished_is_taken(
    paused: tuple[MetricsBoard, ChildProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    board, writer = paused
    os.kill(writer.pid, signal.SIGSTOP)
    with monkeypatch.context() as impatient:
        impatient.setattr(sequence_lock, "PATIENCE_S", 0.0)
        with pytest.raises(StaleTickError):
            board.read(writer.peer)
    os.kill(writer.pid, signal.SIGCONT)
    writer.channel.send("go on")
    assert writer.receive() == "written"
    os.kill(writer.pid, signal.SIGKILL)
    assert writer.wait(SOON)
    report = board.read(writer.peer)
    assert report is not None
    assert report.values == {"x": 2.0}
