"""Rollouts come through whole, once and in order, or are counted as dropped."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable

import pytest
import torch
from appo_children import RolloutTrial, check, fill
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trials import ENDED, Server

from drivetrain_trainer.runtime.child_process import ChildProcess
from drivetrain_trainer.runtime.doorbell import Doorbell, Interrupt, Peer
from drivetrain_trainer.runtime.faults import (
    PeerDiedError,
    ProtocolError,
    StaleTickError,
    StopRequestedError,
)
from drivetrain_trainer.runtime.ingress_words import SEQUENCES, WriteResult
from drivetrain_trainer.runtime.rollout_ring import (
    DropPolicy,
    Rollout,
    RolloutConsumer,
    RolloutLayout,
    RolloutProducer,
    RolloutRing,
)

SOON = 20.0
LAYOUT = RolloutLayout(steps=3, envs=2, observation_dim=5, action_dim=1)
STARTS = (0, 2**32 - 2, SEQUENCES - 2)
"""First sequence numbers: none, one and all of a word's bits."""


def ends(
    depth: int = 2,
    *,
    policy: DropPolicy = DropPolicy.WAIT,
    checksum: bool = True,
    first: int = 0,
) -> tuple[RolloutRing, RolloutProducer, RolloutConsumer]:
    ring = RolloutRing.create(LAYOUT, depth, checksum=checksum, first_sequence=first)
    peer = Peer(os.getpid(), "self")
    return ring, ring.producer(peer, policy=policy), ring.consumer(peer)


def put(producer: RolloutProducer, number: int) -> None:
    rollout = producer.begin()
    assert isinstance(rollout, Rollout)
    fill(rollout, number)
    assert producer.publish(policy_version=number) is WriteResult.COMPLETE


def test_the_fields_of_a_slot() -> None:
    """Sizes by hand: 30, 6, 6, 6, 6, 6, 30 and 10 floats, each filled up to a multiple of 16."""
    assert LAYOUT.floats == 32 + 16 + 16 + 16 + 16 + 16 + 32 + 16
    _, producer, _ = ends()
    rollout = producer.begin()
    assert isinstance(rollout, Rollout)
    shapes = [tuple(field.shape) for field in rollout.fields()]
    grid = (3, 2)
    assert shapes == [(*grid, 5), (*grid, 1), grid, grid, grid, grid, (*grid, 5), (2, 5)]
    assert {field.dtype for field in rollout.fields()} == {torch.float32}
    assert all(field.data_ptr() % 64 == 0 for field in rollout.fields())
    assert rollout.policy_version is None
    again = producer.begin()
    assert isinstance(again, Rollout)
    assert again.observations.data_ptr() == rollout.observations.data_ptr(), "not yet published"


def test_a_rollout_that_is_being_filled_is_not_there_yet() -> None:
    ring, producer, consumer = ends()
    assert isinstance(producer.begin(), Rollout)
    assert (consumer.available(), consumer.take()) == (0, None)
    producer.publish(policy_version=4)
    assert consumer.available() == 1
    taken = consumer.take()
    assert taken is not None
    assert (taken.sequence, taken.policy_version) == (0, 4)
    consumer.release(taken)
    counters = ring.counters()
    assert (counters.published, counters.taken, counters.occupancy) == (1, 1, 0)


@settings(deadline=None)
@given(
    depth=st.integers(1, 3),
    first=st.sampled_from(STARTS),
    checksum=st.booleans(),
    moves=st.lists(st.booleans(), max_size=24),
)
def test_it_is_a_bounded_line_that_drops_what_it_has_no_room_for(
    depth: int, first: int, checksum: bool, moves: list[bool]
) -> None:
    """Against a deque: put where the move is true, take where it is false."""
    ring, producer, consumer = ends(
        depth, policy=DropPolicy.DROP_NEWEST, checksum=checksum, first=first
    )
    model: deque[int] = deque()
    made = published = dropped = taken = most = 0
    for puts in moves:
        if puts and len(model) == depth:
            assert producer.begin() is WriteResult.FULL
            dropped += 1
        elif puts:
            put(producer, made)
            model.append(made)
            published += 1
            most = max(most, len(model))
        elif model:
            rollout = consumer.take()
            assert rollout is not None
            check(rollout, model[0])
            assert rollout.policy_version == model.popleft()
            assert rollout.sequence == (first + taken) % SEQUENCES
            consumer.release(rollout)
            taken += 1
        else:
            assert consumer.take() is None
        made += puts
        assert consumer.available() == len(model)
    counters = ring.counters()
    assert (counters.published, counters.taken, counters.dropped) == (published, taken, dropped)
    assert (counters.occupancy, counters.high_water) == (len(model), most)
    assert (counters.backpressure_waits, counters.ended_returns) == (0, 0)
    ring.close()


def test_a_full_ring_makes_the_collector_wait_and_counts_it() -> None:
    ring, producer, consumer = ends(1)
    put(producer, 0)
    done = threading.Thread(target=put, args=(producer, 1))
    done.start()
    deadline = time.monotonic() + SOON
    while ring.counters().backpressure_waits == 0 and time.monotonic() < deadline:
        time.sleep(0.001)
    for number in range(2):
        rollout = consumer.await_rollout(SOON)
        check(rollout, number)
        consumer.release(rollout)
    done.join(SOON)
    counters = ring.counters()
    assert (counters.backpressure_waits, counters.dropped) == (1, 0)
    assert counters.backpressure_wait_s > 0.0


@pytest.mark.parametrize(
    ("end", "result"),
    [
        (RolloutConsumer.close, WriteResult.CLOSED),
        (RolloutConsumer.request_stop, WriteResult.STOPPED),
    ],
)
def test_an_end_drops_the_open_rollout_and_keeps_the_complete_ones(
    end: Callable[[RolloutConsumer], None], result: WriteResult
) -> None:
    ring, producer, consumer = ends(2)
    put(producer, 0)
    assert isinstance(producer.begin(), Rollout)
    end(consumer)
    assert producer.publish(policy_version=1) is result
    assert producer.begin() is result
    counters = ring.counters()
    assert (counters.published, counters.dropped, counters.ended_returns) == (1, 2, 2)
    left = consumer.take()
    assert left is not None
    check(left, 0)


class TestRefusals:
    def test_a_slot_that_is_being_written(self) -> None:
        ring, producer, consumer = ends()
        put(producer, 0)
        ring.line.headers()[0][4] += 1
        with pytest.raises(ProtocolError, match="lock: expected an even one, found 3"):
            consumer.take()

    @pytest.mark.parametrize("field", range(8))
    def test_one_altered_value_where_it_is_checked(self, field: int) -> None:
        _, producer, consumer = ends()
        rollout = producer.begin()
        assert isinstance(rollout, Rollout)
        fill(rollout, 0)
        producer.publish(policy_version=0)
        rollout.fields()[field].view(-1)[-1] += 1.0
        with pytest.raises(ProtocolError, match="slot 0: checksum"):
            consumer.take()

    def test_a_slot_that_was_written_while_it_was_read(self) -> None:
        ring, producer, consumer = ends()
        put(producer, 0)
        rollout = consumer.take()
        assert rollout is not None
        ring.line.headers()[0][4] += 2
        with pytest.raises(ProtocolError, match="lock while it was read: expected 2, found 4"):
            consumer.release(rollout)

    def test_a_rollout_that_is_not_the_oldest(self) -> None:
        _, producer, consumer = ends()
        put(producer, 0)
        rollout = consumer.take()
        assert rollout is not None
        consumer.release(rollout)
        with pytest.raises(ProtocolError, match="released: expected None, found 0"):
            consumer.release(rollout)

    def test_what_was_not_begun_and_a_version_below_zero(self) -> None:
        _, producer, _ = ends()
        with pytest.raises(RuntimeError, match="no rollout was begun"):
            producer.publish(policy_version=0)
        producer.begin()
        with pytest.raises(ValueError, match="policy_version -1, at least 0"):
            producer.publish(policy_version=-1)

    @pytest.mark.parametrize("name", ["steps", "envs", "observation_dim", "action_dim"])
    def test_a_size_below_one(self, name: str) -> None:
        sizes = {"steps": 1, "envs": 1, "observation_dim": 1, "action_dim": 1, name: 0}
        with pytest.raises(ValueError, match=f"rollout: {name} 0, at least 1"):
            RolloutLayout(**sizes)


def test_a_wait_ends_by_time_and_by_interrupt() -> None:
    _, _, consumer = ends()
    with pytest.raises(StaleTickError, match="for a rollout"):
        consumer.await_rollout(0.01)
    interrupt = Interrupt()
    interrupt.set()
    with pytest.raises(StopRequestedError):
        consumer.await_rollout(None, interrupt=interrupt)


@pytest.mark.parametrize("first", STARTS)
def test_a_slow_consumer_gets_every_rollout_whole(first: int) -> None:
    """Between processes, without a pause on the other side."""
    ring = RolloutRing.create(LAYOUT, 2, checksum=True, first_sequence=first)
    with ChildProcess.spawn("appo_children:write_rollouts", "collector") as child:
        child.channel.send((ring, 200, 0.0))
        assert child.receive() == "ready", child.failure
        consumer = ring.consumer(child.peer)
        for number in range(200):
            rollout = consumer.await_rollout(SOON)
            check(rollout, number)
            assert rollout.policy_version == number
            if number % 50 == 0:
                time.sleep(0.005)
            check(rollout, number)
            consumer.release(rollout)
        assert child.wait(SOON)
    counters = ring.counters()
    assert (counters.published, counters.taken, counters.dropped) == (200, 200, 0)
    assert counters.high_water <= 2
    assert (counters.backpressure_wait_s > 0.0) == (counters.backpressure_waits > 0)


def take_whole(consumer: RolloutConsumer, number: int) -> None:
    rollout = consumer.await_rollout(SOON)
    check(rollout, number)
    consumer.release(rollout)


@pytest.mark.parametrize("after", [0, 1, 7, 40])
def test_a_collector_killed_at_any_point_leaves_whole_rollouts(after: int) -> None:
    ring = RolloutRing.create(RolloutLayout(64, 8, 16, 4), 3, checksum=True)
    count = 0
    with ChildProcess.spawn("appo_children:write_rollouts", "collector") as child:
        child.channel.send((ring, 10**6, 0.0))
        assert child.receive() == "ready", child.failure
        consumer = ring.consumer(child.peer)
        while count < after:
            take_whole(consumer, count)
            count += 1
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(SOON)
        while consumer.available():
            take_whole(consumer, count)
            count += 1
        with pytest.raises(PeerDiedError, match="collector process"):
            consumer.await_rollout(None)
    assert after <= count <= after + 3
    assert ring.counters().published - count in (0, 1), "counted and not announced"


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    depth=st.integers(1, 3),
    first=st.sampled_from(STARTS),
    count=st.integers(1, 6),
    die_at=st.none() | st.integers(0, 50),
)
def test_a_collector_that_dies_at_any_word_leaves_whole_rollouts_in_order(
    server: Server, depth: int, first: int, count: int, die_at: int | None
) -> None:
    ring = RolloutRing.create(LAYOUT, depth, checksum=True, first_sequence=first)
    taken = 0
    with server.running(RolloutTrial(ring, Doorbell(), count, die_at)) as collector:
        consumer = ring.consumer(collector)
        with contextlib.suppress(PeerDiedError):
            while taken < count:
                take_whole(consumer, taken)
                taken += 1
        code = server.ended()
    assert code in (ENDED, -signal.SIGKILL)
    assert code != ENDED or taken == count
    counters = ring.counters()
    assert counters.taken == taken
    assert counters.published - taken in (0, 1), "counted and not announced"
    ring.close()


def test_a_learner_that_dies_ends_the_collectors_wait_at_once() -> None:
    ring = RolloutRing.create(LAYOUT, 2)
    with ChildProcess.spawn("appo_children:read_rollouts", "learner") as child:
        child.channel.send((ring, 5))
        assert child.receive() == "ready", child.failure
        producer = ring.producer(child.peer)
        for number in range(7):
            put(producer, number)
        assert child.receive() == "done"
        killer = threading.Timer(0.05, os.kill, (child.pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(PeerDiedError, match="learner process"):
            producer.begin()
        with pytest.raises(PeerDiedError):
            producer.begin()
    counters = ring.counters()
    assert (counters.published, counters.taken, counters.occupancy) == (7, 5, 2)
    assert counters.dropped == 1
    assert counters.backpressure_waits >= 1
