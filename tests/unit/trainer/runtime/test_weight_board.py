"""The newest weights come whole, with a version that only grows."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from appo_children import pattern
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain_trainer.runtime.child_process import ChildProcess
from drivetrain_trainer.runtime.descriptors import Channel
from drivetrain_trainer.runtime.doorbell import Peer
from drivetrain_trainer.runtime.faults import PeerDiedError, ProtocolError, StaleTickError
from drivetrain_trainer.runtime.weight_board import NO_VERSION, WeightBoard

SOON = 20.0
SIZE = 10


def sides(size: int = SIZE) -> tuple[WeightBoard, WeightBoard]:
    writer = WeightBoard.create(size)
    sender, receiver = Channel.pair()
    sender.send(writer)
    reader = receiver.receive()
    assert isinstance(reader, WeightBoard)
    sender.close()
    receiver.close()
    return writer, reader


def test_nothing_is_there_before_the_first_version() -> None:
    writer, reader = sides()
    assert reader.read() is None
    assert (reader.version, writer.version) == (NO_VERSION, NO_VERSION)
    with pytest.raises(StaleTickError, match="for a newer version of the weights"):
        reader.await_newer(Peer(os.getpid(), "learner"), 0.01)


@settings(deadline=None)
@given(steps=st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=12))
def test_a_reader_gets_the_newest_once(steps: list[tuple[int, bool]]) -> None:
    """Versions grow by the first of a pair; the second says whether the reader looks."""
    writer, reader = sides()
    version, taken = NO_VERSION, NO_VERSION
    for growth, looks in steps:
        version += growth
        writer.publish(version, pattern(version, SIZE))
        if looks:
            weights = reader.read()
            assert weights is not None
            assert weights.version == version
            assert torch.equal(weights.values, pattern(version, SIZE))
            assert reader.read() is None
            taken = version
        assert (writer.version, reader.version) == (version, taken)
    writer.close()
    reader.close()


@pytest.mark.parametrize("version", [NO_VERSION, 4, 5])
def test_a_version_that_does_not_grow_is_refused(version: int) -> None:
    writer, reader = sides()
    writer.publish(5, pattern(5, SIZE))
    with pytest.raises(ValueError, match=f"version {version}: not after 5"):
        writer.publish(version, pattern(0, SIZE))
    weights = reader.read()
    assert weights is not None
    assert weights.version == 5


@pytest.mark.parametrize(
    "values",
    [
        torch.zeros(SIZE - 1),
        torch.zeros(SIZE, dtype=torch.float64),
        torch.zeros(1, SIZE),
        torch.zeros(2 * SIZE)[::2],
        torch.zeros(SIZE, device="meta"),
    ],
    ids=["size", "dtype", "shape", "stride", "device"],
)
def test_weights_of_another_form_are_refused(values: torch.Tensor) -> None:
    writer, _ = sides()
    with pytest.raises(ValueError, match="a contiguous vector of 10 float32 on the CPU; got"):
        writer.publish(0, values)


def test_a_board_of_no_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="size 0, at least 1"):
        WeightBoard.create(0)


def test_a_write_that_was_never_finished_leaves_the_version_before() -> None:
    writer, reader = sides()
    writer.publish(1, pattern(1, SIZE))
    writer.publish(2, pattern(2, SIZE))
    writer._records[1]._header[0] += 1  # killed within the third
    weights = reader.read()
    assert weights is not None
    assert weights.version == 2


def test_a_version_written_and_not_announced_is_not_taken_twice() -> None:
    """The reader saw the first one's announcement, and the third's bytes."""
    writer, reader = sides()
    for version in (10, 20, 30):
        writer.publish(version, pattern(version, SIZE))
    announced = writer._words
    announced[0] = 1
    weights = reader.read()
    assert weights is not None
    assert weights.version == 30
    for number in (2, 3):
        announced[0] = number
        assert reader.read() is None


def test_changed_bytes_and_another_order_are_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain_trainer.runtime.sequence_lock.PATIENCE_S", 0.0)
    writer, reader = sides()
    writer.publish(7, pattern(7, SIZE))
    assert reader.read() is not None
    writer._version = NO_VERSION
    writer.publish(6, pattern(6, SIZE))
    with pytest.raises(ProtocolError, match="version: expected after 7, found 6"):
        reader.read()
    writer._records[0]._body[0] ^= 1
    with pytest.raises(StaleTickError, match="for whole weights"):
        reader.read()


def take_whole(board: WeightBoard, learner: Peer, newest: int) -> int:
    weights = board.await_newer(learner, SOON)
    assert weights.version > newest
    assert torch.equal(weights.values, pattern(weights.version % 100_000, board.size))
    return weights.version


@pytest.mark.parametrize("size", [1, 1000, 200_000])
def test_no_version_is_torn_while_its_writer_never_pauses_and_is_killed(size: int) -> None:
    board = WeightBoard.create(size)
    with ChildProcess.spawn("appo_children:publish_weights", "learner") as learner:
        learner.channel.send(board)
        assert learner.receive() == "ready", learner.failure
        newest = NO_VERSION
        for _ in range(200):
            newest = take_whole(board, learner.peer, newest)
        os.kill(learner.pid, signal.SIGKILL)
        assert learner.wait(SOON)
        last = board.read()
        assert last is None or torch.equal(last.values, pattern(last.version % 100_000, size))
        with pytest.raises(PeerDiedError, match="learner process"):
            board.await_newer(learner.peer, None)
