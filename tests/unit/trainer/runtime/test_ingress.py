from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from drivetrain_trainer.runtime.child_process import ChildProcess
from drivetrain_trainer.runtime.descriptors import Channel
from drivetrain_trainer.runtime.doorbell import Peer
from drivetrain_trainer.runtime.faults import PeerDiedError, ProtocolError, StaleTickError
from drivetrain_trainer.runtime.ingress import ReplayIngress
from drivetrain_trainer.runtime.ingress_consumer import IngressConsumer
from drivetrain_trainer.runtime.ingress_producer import IngressProducer
from drivetrain_trainer.runtime.ingress_words import WriteResult

SOON = 10.0
WIDTH = 3


class Sink:
    """Copies what it is given, as an append must."""

    def __init__(self) -> None:
        self.rows: list[float] = []

    def append(self, rows: Tensor) -> None:
        assert rows.shape[1] == WIDTH
        assert bool((rows == rows[:, :1]).all())
        self.rows += rows[:, 0].tolist()


def ports(
    depth: int = 2, slot_rows: int = 4
) -> tuple[ReplayIngress, IngressProducer, IngressConsumer]:
    ingress = ReplayIngress.create(depth, slot_rows, WIDTH)
    peer = Peer(os.getpid(), "self")
    ingress.slots().fill_(torch.nan)
    return ingress, ingress.producer(peer), ingress.consumer(peer)


def block(first: int, count: int) -> Tensor:
    """Rows whose every value is their number."""
    return torch.arange(first, first + count, dtype=torch.float32)[:, None].expand(count, WIDTH)


class Writer(threading.Thread):
    """Writes vectors of these sizes, tick after tick."""

    def __init__(self, producer: IngressProducer, sizes: list[int]) -> None:
        super().__init__(daemon=True)
        self.results: list[WriteResult] = []
        self.error: BaseException | None = None
        self._producer = producer
        self._sizes = sizes

    def run(self) -> None:
        first = 0
        try:
            for tick, size in enumerate(self._sizes):
                self.results.append(self._producer.write(block(first, size), tick))
                first += size
        except BaseException as error:  # noqa: BLE001  # asserted on by the test
            self.error = error


@given(
    depth=st.integers(1, 4),
    slot_rows=st.integers(1, 7),
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=12),
    steps=st.lists(st.integers(1, 3), min_size=1, max_size=6),
)
def test_rows_arrive_exactly_and_in_order_and_every_chunk_is_counted(
    depth: int, slot_rows: int, sizes: list[int], steps: list[int]
) -> None:
    """A consumer that is behind by any pattern of ticks; a slot need not divide a vector."""
    ingress, producer, consumer = ports(depth, slot_rows)
    writer = Writer(producer, sizes)
    writer.start()
    sink, through, taken = Sink(), -1, 0
    for step in steps * len(sizes):
        through = min(through + step, len(sizes) - 1)
        taken += consumer.drain(sink.append, through, timeout_s=SOON)
        expected = sum(sizes[: through + 1])
        assert taken == expected
        assert sink.rows == [float(row) for row in range(expected)]
        assert consumer.completed_tick == through
    writer.join(SOON)
    assert writer.error is None
    assert set(writer.results) == {WriteResult.COMPLETE}
    counters = ingress.counters()
    chunks = sum(max(-(-size // slot_rows), 1) for size in sizes)
    assert counters.published_sequence == counters.release_sequence == chunks
    assert counters.occupancy == 0
    assert 1 <= counters.high_water_occupancy <= depth
    assert counters.backpressure_waits <= chunks
    assert (counters.early_returns, counters.dropped_batches) == (0, 0)
    assert (counters.closed_returns, counters.stop_returns) == (0, 0)


def test_the_counters_carry_the_manifests_names() -> None:
    ingress, _, _ = ports(3, 5)
    assert dataclasses.asdict(ingress.counters()) == {
        "ingress_depth": 3,
        "ingress_slot_rows": 5,
        "published_sequence": 0,
        "release_sequence": 0,
        "occupancy": 0,
        "high_water_occupancy": 0,
        "backpressure_waits": 0,
        "early_returns": 0,
        "dropped_batches": 0,
        "closed_returns": 0,
        "stop_returns": 0,
        "backpressure_wait_s": 0.0,
    }


def test_a_vector_is_split_into_contiguous_chunks_and_the_last_is_marked() -> None:
    _, producer, consumer = ports(depth=4, slot_rows=4)
    producer.write(block(0, 10), 3)
    found = []
    while (chunk := consumer.peek()) is not None:
        found.append((chunk.sequence, chunk.tick, chunk.last, chunk.rows[:, 0].tolist()))
        consumer.release(chunk)
    assert found == [
        (0, 3, False, [0, 1, 2, 3]),
        (1, 3, False, [4, 5, 6, 7]),
        (2, 3, True, [8, 9]),
    ]


def test_a_tick_of_several_writes_is_whole_with_the_last() -> None:
    _, producer, consumer = ports(depth=4)
    sink = Sink()
    producer.write(block(0, 6), 0, last=False)
    assert consumer.poll(sink.append, 0) == 4  # the slot that is full
    assert consumer.completed_tick == -1
    with pytest.raises(StaleTickError, match=r"tick 0: waited 0.0 s for its replay rows"):
        consumer.drain(sink.append, 0, timeout_s=0.001)
    producer.write(block(6, 1), 0)
    assert consumer.drain(sink.append, 0, timeout_s=SOON) == 3
    assert sink.rows == [float(row) for row in range(7)]


@given(slot_rows=st.integers(1, 7), parts=st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_a_vector_makes_the_same_chunks_however_many_parts_it_comes_in(
    slot_rows: int, parts: list[int]
) -> None:
    def chunks(parts: list[int]) -> list[tuple[int, int, bool, list[float]]]:
        _, producer, consumer = ports(depth=40, slot_rows=slot_rows)
        found, first = [], 0
        for number, part in enumerate(parts, start=1):
            producer.write(block(first, part), 0, last=number == len(parts))
            first += part
        while (chunk := consumer.peek()) is not None:
            rows = chunk.rows[:, 0].tolist()
            found.append((chunk.sequence, chunk.tick, chunk.last, rows))
            consumer.release(chunk)
        return found

    assert chunks(parts) == chunks([sum(parts)])


def test_what_a_tick_has_is_flushed_where_the_rest_never_comes() -> None:
    ingress, producer, consumer = ports(depth=2)
    producer.flush()
    assert ingress.counters().published_sequence == 0
    producer.write(block(0, 3), 0, last=False)
    producer.flush()
    producer.flush()
    sink = Sink()
    assert consumer.poll(sink.append, 0) == 3
    assert consumer.completed_tick == -1
    assert ingress.counters().published_sequence == 1


def test_nothing_is_flushed_after_a_stop() -> None:
    ingress, producer, consumer = ports(depth=2)
    producer.write(block(0, 3), 0, last=False)
    consumer.request_stop()
    producer.flush()
    assert ingress.counters().published_sequence == 0
    assert producer.write(block(3, 2), 0) is WriteResult.STOPPED
    counters = ingress.counters()
    assert (counters.dropped_batches, counters.stop_returns) == (2, 1)  # of 3 + 2 rows, 4 a slot
    assert consumer.peek() is None


def test_a_tick_without_rows_is_whole_all_the_same() -> None:
    ingress, producer, consumer = ports()
    sink = Sink()
    producer.write(block(0, 0), 0)
    assert consumer.drain(sink.append, 0, timeout_s=SOON) == 0
    assert consumer.completed_tick == 0
    assert ingress.counters().published_sequence == 1


def test_later_ticks_stay_in_the_line() -> None:
    _, producer, consumer = ports(depth=4)
    sink = Sink()
    for tick in range(3):
        producer.write(block(tick, 1), tick)
    assert consumer.drain(sink.append, 1, timeout_s=SOON) == 2
    assert sink.rows == [0, 1]
    assert consumer.drain(sink.append, 1, timeout_s=SOON) == 0
    assert consumer.drain(sink.append, 2, timeout_s=SOON) == 1


def test_a_tick_that_begins_before_the_last_is_whole_is_refused() -> None:
    _, producer, consumer = ports(depth=4)
    producer.write(block(0, 1), 0, last=False)
    producer.write(block(1, 1), 1)
    with pytest.raises(ProtocolError, match="expected at most 0, found 1"):
        consumer.drain(Sink().append, 0, timeout_s=SOON)


def test_a_slot_with_another_chunk_is_refused() -> None:
    ingress, producer, consumer = ports()
    producer.write(block(0, 1), 0)
    ingress.headers()[0][0] = 5
    with pytest.raises(ProtocolError, match="slot 0: sequence: expected 0, found 5"):
        consumer.peek()


def test_the_first_tick_may_be_any() -> None:
    ingress, producer, _ = ports()
    consumer = ingress.consumer(Peer(os.getpid(), "self"), first_tick=40)
    assert consumer.drain(Sink().append, 39) == 0
    producer.write(block(0, 1), 40)
    assert consumer.drain(Sink().append, 40) == 1


def test_back_pressure_is_counted_with_its_seconds() -> None:
    ingress, producer, consumer = ports(depth=1, slot_rows=4)
    writer = Writer(producer, [4, 4, 4])
    writer.start()
    while ingress.counters().backpressure_waits == 0:
        time.sleep(0.001)
    assert ingress.counters().occupancy == ingress.counters().high_water_occupancy == 1
    sink = Sink()
    consumer.drain(sink.append, 2, timeout_s=SOON)
    writer.join(SOON)
    counters = ingress.counters()
    assert 1 <= counters.backpressure_waits <= 2
    assert 0.0 < counters.backpressure_wait_s < SOON


def test_pressure_is_relieved_by_a_consumer_that_waits_for_something_else() -> None:
    ingress, producer, consumer = ports(depth=1, slot_rows=2)
    sink = Sink()
    meanwhile = consumer.meanwhile(sink.append, 0)
    assert meanwhile.bell is ingress.pressure
    writer = Writer(producer, [7, 3])
    writer.start()
    while writer.is_alive() and ingress.counters().release_sequence < 4:
        meanwhile.run()
        time.sleep(0.001)
    meanwhile.run()
    assert sink.rows == [float(row) for row in range(7)]  # and nothing of tick 1
    consumer.drain(sink.append, 1, timeout_s=SOON)
    writer.join(SOON)
    assert sink.rows == [float(row) for row in range(10)]


def test_a_chunk_that_finds_room_wakes_nobody_for_pressure() -> None:
    ingress, producer, _ = ports(depth=2)
    producer.write(block(0, 4), 0)
    producer.write(block(4, 4), 1)
    assert ingress.pressure.collect() == 0


@pytest.mark.parametrize("blocked", [True, False])
@pytest.mark.parametrize(
    ("end", "result", "counter"),
    [
        (IngressConsumer.close, WriteResult.CLOSED, "closed_returns"),
        (IngressConsumer.request_stop, WriteResult.STOPPED, "stop_returns"),
    ],
)
def test_an_end_lets_the_writer_go_with_a_valid_prefix(
    end: object, result: WriteResult, counter: str, *, blocked: bool
) -> None:
    assert callable(end)
    ingress, producer, consumer = ports(depth=2, slot_rows=4)
    if not blocked:
        end(consumer)
    writer = Writer(producer, [18])  # five chunks
    writer.start()
    while blocked and ingress.counters().backpressure_waits == 0:
        time.sleep(0.001)
    end(consumer)
    writer.join(SOON)
    assert writer.results == [result]
    published = 2 if blocked else 0
    counters = dataclasses.asdict(ingress.counters())
    assert counters["published_sequence"] == published
    assert (counters["early_returns"], counters[counter]) == (1, 1)
    assert counters["closed_returns"] + counters["stop_returns"] == 1
    assert counters["dropped_batches"] == 5 - published
    sink = Sink()
    consumer.poll(sink.append, 0)
    assert sink.rows == [float(row) for row in range(4 * published)]


@pytest.mark.parametrize("name", ["depth", "slot_rows", "width"])
def test_sizes_below_one_are_refused(name: str) -> None:
    sizes = {"depth": 2, "slot_rows": 4, "width": 3, name: 0}
    with pytest.raises(ValueError, match=f"{name} 0, at least 1"):
        ReplayIngress.create(**sizes)


def test_the_slots_have_the_budgets_size() -> None:
    ingress = ReplayIngress.create(2, 64, 43)
    exact = 2 * 64 * 43 * 4
    assert exact <= ingress.memory.nbytes <= exact + 4096


def test_a_sent_ingress_is_the_same_memory_and_bells() -> None:
    ingress, producer, _ = ports()
    first, second = Channel.pair()
    with first, second:
        first.send(ingress)
        received: ReplayIngress = second.receive()
    producer.write(block(0, 3), 0)
    sink = Sink()
    received.consumer(Peer(os.getpid(), "self")).drain(sink.append, 0, timeout_s=SOON)
    assert sink.rows == [0, 1, 2]
    assert ingress.counters() == received.counters()
    ingress.close()
    ingress.close()


def spawn(ingress: ReplayIngress, vectors: int, rows: int) -> ChildProcess:
    child = ChildProcess.spawn("ring_children:write_rows", "writer")
    child.channel.send((ingress, vectors, rows))
    assert child.receive() == "ready", child.failure
    return child


def test_a_writer_in_another_process_is_served_to_the_last_row() -> None:
    ingress = ReplayIngress.create(3, 100, WIDTH)
    sink = Sink()
    with spawn(ingress, vectors=400, rows=257) as writer:
        consumer = ingress.consumer(writer.peer)
        for tick in range(400):
            assert consumer.drain(sink.append, tick, timeout_s=SOON) == 257
        assert set(writer.receive()) == {WriteResult.COMPLETE}  # type: ignore[call-overload]
    assert sink.rows == [float(row) for row in range(400 * 257)]
    assert ingress.counters().published_sequence == 400 * 3


def test_a_dead_writer_ends_the_drain_after_its_last_chunk() -> None:
    ingress = ReplayIngress.create(2, 4, WIDTH)
    with spawn(ingress, vectors=100, rows=6) as writer:
        consumer = ingress.consumer(writer.peer)
        while ingress.counters().backpressure_waits == 0:
            time.sleep(0.001)
        os.kill(writer.pid, signal.SIGKILL)
        assert writer.wait(SOON)
        sink = Sink()
        with pytest.raises(PeerDiedError):
            consumer.drain(sink.append, 99, timeout_s=SOON)
        assert sink.rows == [0, 1, 2, 3, 4, 5]


def test_a_dead_reader_lets_the_blocked_writer_go() -> None:
    with ChildProcess.spawn("children:echo", "reader") as reader:
        ingress = ReplayIngress.create(1, 4, WIDTH)
        writer = Writer(ingress.producer(Peer(reader.pid, "reader")), [4, 4])
        writer.start()
        while ingress.counters().backpressure_waits == 0:
            time.sleep(0.001)
        os.kill(reader.pid, signal.SIGKILL)
        writer.join(SOON)
        assert isinstance(writer.error, PeerDiedError)
        assert ingress.counters().backpressure_wait_s > 0.0
