"""The ingress as a queue between two real processes, either of which may be slow or die."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ingress_children import Trial, rows_of
from torch import Tensor
from trials import CUT_OFF, ENDED, Server

from drivetrain_trainer.runtime.doorbell import Doorbell, Peer
from drivetrain_trainer.runtime.faults import PeerDiedError, ProtocolError
from drivetrain_trainer.runtime.ingress import ReplayIngress
from drivetrain_trainer.runtime.ingress_consumer import IngressConsumer
from drivetrain_trainer.runtime.ingress_words import SEQUENCES, WriteResult

SOON = 20.0
WIDTH = 5
STARTS = (0, 2**32 - 3, SEQUENCES - 3)
"""First sequence numbers: none, one and all of a word's bits."""
VECTORS = st.lists(
    st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple), min_size=1, max_size=6
).map(tuple)


def make(depth: int, slot_rows: int, first_sequence: int = 0) -> ReplayIngress:
    ingress = ReplayIngress.create(depth, slot_rows, WIDTH, first_sequence=first_sequence)
    ingress.slots().fill_(torch.nan)
    return ingress


LINES = st.builds(
    make,
    st.integers(1, 4),
    st.integers(1, 7),
    st.sampled_from(STARTS),
)
BRIEF = settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


class Sink:
    """Rows as they come; each must be whole, and the next one."""

    def __init__(self) -> None:
        self.count = 0

    def append(self, rows: Tensor) -> None:
        assert torch.equal(rows, rows_of(self.count, rows.shape[0], WIDTH))
        self.count += rows.shape[0]


def chunks_of(vectors: tuple[tuple[int, ...], ...], slot_rows: int) -> int:
    return sum(max(-(-sum(parts) // slot_rows), 1) for parts in vectors)


def published(ingress: ReplayIngress) -> int:
    counters = ingress.counters()
    return (counters.published_sequence - ingress.first_sequence) % SEQUENCES


@BRIEF
@given(
    ingress=LINES,
    vectors=VECTORS,
    pauses=st.tuples(st.sampled_from((0.0, 0.0005)), st.sampled_from((0.0, 0.0005))),
)
def test_every_row_comes_through_once_and_in_order(
    server: Server,
    ingress: ReplayIngress,
    vectors: tuple[tuple[int, ...], ...],
    pauses: tuple[float, float],
) -> None:
    """With a slow writer, a slow reader, or neither; also where sequence numbers wrap."""
    sink = Sink()
    trial = Trial(ingress, Doorbell(), vectors, pause_s=pauses[0])
    with server.running(trial) as writer:
        consumer = ingress.consumer(writer)
        for tick, parts in enumerate(vectors):
            assert consumer.drain(sink.append, tick, timeout_s=SOON) == sum(parts)
            time.sleep(pauses[1])
    assert server.ended() == ENDED
    counters = ingress.counters()
    chunks = chunks_of(vectors, ingress.slot_rows)
    expected = (ingress.first_sequence + chunks) % SEQUENCES
    assert counters.published_sequence == counters.release_sequence == expected
    assert counters.occupancy == 0
    assert 1 <= counters.high_water_occupancy <= ingress.depth
    assert counters.backpressure_waits <= chunks
    assert (counters.backpressure_wait_s > 0.0) == (counters.backpressure_waits > 0)
    early = (counters.early_returns, counters.closed_returns, counters.stop_returns)
    assert (*early, counters.dropped_batches) == (0, 0, 0, 0)


@BRIEF
@given(
    ingress=LINES,
    vectors=VECTORS,
    die_at=st.integers(0, 60),
)
def test_a_writer_that_dies_at_any_word_leaves_whole_chunks_in_order(
    server: Server,
    ingress: ReplayIngress,
    vectors: tuple[tuple[int, ...], ...],
    die_at: int,
) -> None:
    sink = Sink()
    trial = Trial(ingress, Doorbell(), vectors, die_at=die_at)
    with server.running(trial) as writer:
        consumer = ingress.consumer(writer)
        try:
            consumer.drain(sink.append, len(vectors) - 1, timeout_s=SOON)
            whole = True
        except PeerDiedError:
            whole = False
    assert server.ended() in (ENDED, -signal.SIGKILL)
    before = [sum(sum(parts) for parts in vectors[:tick]) for tick in range(len(vectors) + 1)]
    assert before[consumer.completed_tick + 1] <= sink.count <= before[-1]
    assert not whole or sink.count == before[-1]
    # A chunk that was counted and not announced is left in the line: it is not lost unseen.
    counters = ingress.counters()
    assert counters.occupancy in (0, 1)
    assert (counters.published_sequence - counters.release_sequence) % SEQUENCES in (0, 1)


@BRIEF
@given(depth=st.integers(1, 3), slot_rows=st.integers(1, 5), taken=st.integers(0, 12))
@example(depth=1, slot_rows=1, taken=0)
def test_a_reader_that_dies_at_any_chunk_ends_the_write_and_all_is_accounted_for(
    server: Server, depth: int, slot_rows: int, taken: int
) -> None:
    ingress = make(depth, slot_rows)
    written = 0
    with server.running(Trial(ingress, Doorbell(), die_at=taken)) as reader:
        producer = ingress.producer(reader)
        while written < 1000:
            try:
                producer.write(rows_of(0, 6, WIDTH), written)
            except PeerDiedError:
                break
            written += 1
    assert server.ended() == -signal.SIGKILL
    counters = ingress.counters()
    a_vector = -(-6 // slot_rows)
    assert counters.release_sequence == taken
    assert counters.occupancy == depth
    assert counters.published_sequence == taken + depth
    assert counters.published_sequence + counters.dropped_batches == (written + 1) * a_vector
    assert (counters.early_returns, counters.closed_returns, counters.stop_returns) == (1, 0, 0)


@BRIEF
@given(
    ingress=LINES,
    vectors=VECTORS,
    chunks=st.integers(0, 4),
    close=st.booleans(),
)
def test_an_end_at_any_time_leaves_a_valid_prefix_and_exact_counts(
    server: Server,
    ingress: ReplayIngress,
    vectors: tuple[tuple[int, ...], ...],
    chunks: int,
    *,
    close: bool,
) -> None:
    """The line ends after so many chunks were taken out, with the writer blocked or not."""
    sink = Sink()
    with server.running(Trial(ingress, Doorbell(), vectors)) as writer:
        consumer = ingress.consumer(writer)
        for _ in range(min(chunks, chunks_of(vectors, ingress.slot_rows))):
            while (chunk := consumer.peek()) is None:
                consumer.await_published(0, SOON)
            sink.append(chunk.rows)
            consumer.release(chunk)
        (IngressConsumer.close if close else IngressConsumer.request_stop)(consumer)
        code = server.ended()
    counters = ingress.counters()
    assert code in (ENDED, CUT_OFF)
    early = int(code == CUT_OFF)
    assert counters.early_returns == early
    assert (counters.closed_returns, counters.stop_returns) == ((early, 0) if close else (0, early))
    assert (counters.dropped_batches > 0) == bool(early)
    left = (counters.published_sequence - counters.release_sequence) % SEQUENCES
    assert counters.occupancy == left <= ingress.depth
    while (chunk := consumer.peek()) is not None:  # what was published stays valid
        sink.append(chunk.rows)
        consumer.release(chunk)
    assert ingress.counters().release_sequence == counters.published_sequence
    if not early:
        assert published(ingress) == chunks_of(vectors, ingress.slot_rows)


def test_a_chunk_that_is_not_the_one_due_is_refused() -> None:
    peer = Peer(os.getpid(), "self")
    ingress = make(2, 4, SEQUENCES - 1)
    producer, consumer = ingress.producer(peer), ingress.consumer(peer)
    assert producer.write(rows_of(0, 3, WIDTH), 0) is WriteResult.COMPLETE
    assert published(ingress) == 1
    assert ingress.counters().published_sequence == 0, "wrapped"
    ingress.headers()[0][0] = 5
    with pytest.raises(ProtocolError, match=rf"expected {SEQUENCES - 1}, found 5"):
        consumer.peek()
