"""The bounded first-in first-out line of packed rows from collector to replay.

`depth` slots of `slot_rows` rows lie in shared memory. A vector of transitions is published
as contiguous chunks, one slot each; the last one is marked, so that the reader knows when a
tick is whole. It may be written in parts: a slot is filled before it is published, so the
chunks are the same ones however many parts there are. Where no slot is free the writer waits,
and the wait is counted.

Every counter here counts chunks, not vectors. Sequence numbers are 63 bits wide and wrap.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

import torch

from drivetrain_trainer.runtime.doorbell import Doorbell, Interrupt, Meanwhile, Peer, wait
from drivetrain_trainer.runtime.faults import PeerDiedError, ProtocolError, StaleTickError
from drivetrain_trainer.runtime.ingress_words import (
    Chunk,
    Consumer,
    Header,
    IngressCounters,
    Producer,
    WriteResult,
    chunks_between,
    sequence_after,
)
from drivetrain_trainer.runtime.shared_memory import CACHE_LINE, WORD, MemoryPlan, SharedMemory
from drivetrain_trainer.tracing import NO_FLOW, FlowPoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from drivetrain_trainer.tracing import TickFlow

_LINE: Final = CACHE_LINE // WORD

DRAIN_TIMEOUT_S: Final = 60.0
"""A collector that has asked for the next tick has published this one already."""


class ReplayIngress:
    """The shared slots and their bells; each process opens its own port on them.

    `published` and `released` count chunks; `pressure` rings when the producer finds no free
    slot, so that a consumer that waits for something else is not woken by every chunk.
    """

    def __init__(
        self,
        *,
        depth: int,
        slot_rows: int,
        width: int,
        first_sequence: int = 0,
        memory: SharedMemory | None = None,
        published: Doorbell | None = None,
        released: Doorbell | None = None,
        pressure: Doorbell | None = None,
    ) -> None:
        for name, value in (("depth", depth), ("slot_rows", slot_rows), ("width", width)):
            if value < 1:
                raise ValueError(f"replay ingress: {name} {value}, at least 1")
        self.depth = depth
        self.slot_rows = slot_rows
        self.width = width
        self.first_sequence = first_sequence
        """Number of the first chunk."""
        plan = MemoryPlan()
        self._producer = plan.words(_LINE)
        self._consumer = plan.words(_LINE)
        self._headers = plan.words(_LINE * depth)
        self._rows = plan.floats(depth, slot_rows, width)
        if memory is None:
            memory = SharedMemory.create(plan.nbytes, "ingress")
            memory.words(self._producer, _LINE)[Producer.PUBLISHED] = first_sequence
            memory.words(self._consumer, _LINE)[Consumer.RELEASED] = first_sequence
        self.memory = memory
        self.published = published or Doorbell()
        self.released = released or Doorbell()
        self.pressure = pressure or Doorbell()

    @classmethod
    def create(cls, depth: int, slot_rows: int, width: int, *, first_sequence: int = 0) -> Self:
        """A line of `depth` slots of `slot_rows` rows of `width` floats, still empty."""
        return cls(depth=depth, slot_rows=slot_rows, width=width, first_sequence=first_sequence)

    def slot_of(self, sequence: int) -> int:
        """The slot of a chunk: one after the other, also where the numbers wrap."""
        return chunks_between(self.first_sequence, sequence) % self.depth

    def producer(
        self, learner: Peer, *, barrier: Callable[[], None] | None = None
    ) -> IngressProducer:
        """The end of the process that has the transitions.

        Args:
            learner: the other end's process.
            barrier: blocks until rows copied from a device are there; called once a chunk,
                before it is published. None where rows are in host memory.
        """
        return IngressProducer(self, learner, barrier)

    def consumer(
        self, collector: Peer, *, first_tick: int = 0, flow: TickFlow = NO_FLOW
    ) -> IngressConsumer:
        """The end of the process that trains on them; `first_tick` is the first to come."""
        return IngressConsumer(self, collector, first_tick, flow)

    def producer_words(self) -> memoryview:
        """Counters that the producer writes."""
        return self.memory.words(self._producer, _LINE)

    def consumer_words(self) -> memoryview:
        """Counter and flags that the consumer writes."""
        return self.memory.words(self._consumer, _LINE)

    def headers(self) -> list[memoryview]:
        """A header a slot."""
        return [
            self.memory.words(self._headers + CACHE_LINE * slot, _LINE)
            for slot in range(self.depth)
        ]

    def slots(self) -> Tensor:
        """(depth, slot_rows, W) float32."""
        return self.memory.tensor(
            (self.depth, self.slot_rows, self.width), torch.float32, self._rows
        )

    def counters(self) -> IngressCounters:
        """The accounting now; exact on either side for what that side does."""
        producer, consumer = self.producer_words(), self.consumer_words()
        released = consumer[Consumer.RELEASED]
        published = producer[Producer.PUBLISHED]
        return IngressCounters(
            ingress_depth=self.depth,
            ingress_slot_rows=self.slot_rows,
            published_sequence=published,
            release_sequence=released,
            occupancy=min(chunks_between(released, published), self.depth),
            high_water_occupancy=producer[Producer.HIGH_WATER],
            backpressure_waits=producer[Producer.WAITS],
            early_returns=producer[Producer.EARLY],
            dropped_batches=producer[Producer.DROPPED],
            closed_returns=producer[Producer.CLOSED_RETURNS],
            stop_returns=producer[Producer.STOP_RETURNS],
            backpressure_wait_s=producer[Producer.WAIT_NS] * 1e-9,
        )

    def close(self) -> None:
        """Close memory and bells; a second time does nothing."""
        self.memory.close()
        self.published.close()
        self.released.close()
        self.pressure.close()

    def __getstate__(self) -> dict[str, object]:
        return {
            "depth": self.depth,
            "slot_rows": self.slot_rows,
            "width": self.width,
            "first_sequence": self.first_sequence,
            "memory": self.memory,
            "published": self.published,
            "released": self.released,
            "pressure": self.pressure,
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a received object is built like a new one


class IngressProducer:
    """The writer's end."""

    def __init__(
        self, ingress: ReplayIngress, learner: Peer, barrier: Callable[[], None] | None = None
    ) -> None:
        self._ingress = ingress
        self._peer = learner
        self._barrier = barrier
        self._own = ingress.producer_words()
        self._flags = ingress.consumer_words()
        self._headers = ingress.headers()
        self._slots = ingress.slots()
        self._free = ingress.depth
        self._open: int | None = None
        """The slot that is being filled."""
        self._filled = 0
        """Rows in it."""
        self._tick = 0

    @property
    def occupancy(self) -> int:
        """Chunks in the line, as far as the writer has seen slots come free."""
        return self._ingress.depth - self._free

    def write(self, rows: Tensor, tick: int, *, last: bool = True) -> WriteResult:
        """Publish rows in order, waiting for free slots where there are none.

        Args:
            rows: (n, W) float32; none at all still marks the tick whole.
            tick: of the rows; never falling from write to write, and rising only after the
                last rows of a tick.
            last: whether the tick is whole with these rows. Otherwise those that do not fill
                a slot are published with what follows, or by `flush`.

        Returns:
            COMPLETE, or why it ended early: what was published until then is a valid prefix.

        Raises:
            PeerDiedError: the learner is gone.
        """
        self._tick = tick
        left = rows
        early = self._ended()
        while early is None:
            if self._open is None:
                early = self._await_free(left.shape[0])
                continue
            left = self._fill(left)
            if left.shape[0] == 0:
                break
            self._publish(last=False)
        if early is not None:
            return self._end_early(early, left.shape[0])
        if last:
            self._publish(last=True)
        return WriteResult.COMPLETE

    def reserve(self, *, waiting: bool = True) -> int | WriteResult:
        """Open a slot to fill it in place, as long as one likes; the open one, if there is one.

        Args:
            waiting: whether to wait for a free slot; otherwise its chunk counts as dropped.

        Returns:
            Number of the slot, or why there is none.

        Raises:
            PeerDiedError: the learner is gone.
        """
        if not self._peer.alive():
            raise self._peer.death()
        if self._open is None and not waiting and self._ended() is None:
            self._free += self._ingress.released.collect()
            if self._free <= 0:
                self._own[Producer.DROPPED] += 1
                return WriteResult.FULL
        early = self._ended() if self._open is not None else self._await_free(1)
        if early is not None:
            return self._end_early(early, 1)
        assert self._open is not None, "opened, where the line has not ended"
        return self._open

    def commit(self, tick: int, rows: int) -> WriteResult:
        """Publish the slot that was reserved: so many rows, as the last ones of `tick`.

        Returns:
            COMPLETE, or why nothing was published.
        """
        if self._open is None:
            raise RuntimeError("replay ingress: no slot is reserved")
        early = self._ended()
        if early is not None:
            return self._end_early(early, rows)
        self._tick, self._filled = tick, rows
        self._publish(last=True)
        return WriteResult.COMPLETE

    def flush(self) -> None:
        """Publish what a tick that is not whole has in an open slot: a valid prefix of it."""
        if self._open is not None and self._filled and self._ended() is None:
            self._publish(last=False)

    def _fill(self, rows: Tensor) -> Tensor:
        """Put as many rows as fit into the open slot; the ones that are left."""
        room = min(self._ingress.slot_rows - self._filled, rows.shape[0])
        if room:
            filled = self._filled + room
            self._slots[self._open, self._filled : filled].copy_(
                rows[:room], non_blocking=self._barrier is not None
            )
            self._filled = filled
        return rows[room:]

    def _await_free(self, rows: int) -> WriteResult | None:
        """Open a slot, for so many rows that are left; why there is none, if the line ended."""
        self._free += self._ingress.released.collect()
        # Asked after every collection: the ring of an end is no free slot.
        ended = self._ended()
        if ended is None and self._free <= 0:
            self._wait_for_release(rows)
            ended = self._ended()
        if ended is None:
            self._open = self._ingress.slot_of(self._own[Producer.PUBLISHED])
        return ended

    def _wait_for_release(self, rows: int) -> None:
        self._own[Producer.WAITS] += 1
        self._ingress.pressure.ring()
        started = time.monotonic_ns()
        try:
            while self._free <= 0:
                self._free += wait(self._ingress.released, self._peer, None)
        except PeerDiedError:
            self._count_early(rows)
            raise
        finally:
            self._own[Producer.WAIT_NS] += time.monotonic_ns() - started

    def _ended(self) -> WriteResult | None:
        if self._flags[Consumer.CLOSED]:
            return WriteResult.CLOSED
        return WriteResult.STOPPED if self._flags[Consumer.STOPPED] else None

    def _end_early(self, result: WriteResult, rows: int) -> WriteResult:
        self._count_early(rows)
        self._own[
            Producer.CLOSED_RETURNS if result is WriteResult.CLOSED else Producer.STOP_RETURNS
        ] += 1
        return result

    def _count_early(self, rows: int) -> None:
        """Count a write that ended with so many rows left, and the chunks that it would be."""
        unpublished = self._filled + rows
        self._own[Producer.EARLY] += 1
        self._own[Producer.DROPPED] += max(-(-unpublished // self._ingress.slot_rows), 1)
        self._open, self._filled = None, 0

    def _publish(self, *, last: bool) -> None:
        if self._barrier is not None:
            self._barrier()
        sequence = self._own[Producer.PUBLISHED]
        header = self._headers[self._ingress.slot_of(sequence)]
        header[Header.SEQUENCE] = sequence
        header[Header.TICK] = self._tick
        header[Header.ROWS] = self._filled
        header[Header.LAST] = last
        self._own[Producer.PUBLISHED] = sequence_after(sequence)
        occupancy = chunks_between(self._flags[Consumer.RELEASED], sequence) + 1
        self._own[Producer.HIGH_WATER] = max(self._own[Producer.HIGH_WATER], occupancy)
        self._open, self._filled = None, 0
        self._free -= 1
        self._ingress.published.ring()


class IngressConsumer:
    """The reader's end; used by one thread at a time."""

    def __init__(
        self,
        ingress: ReplayIngress,
        collector: Peer,
        first_tick: int,
        flow: TickFlow = NO_FLOW,
    ) -> None:
        self.completed_tick = first_tick - 1
        """Newest tick whose rows have all been taken out."""
        self._ingress = ingress
        self._peer = collector
        self._own = ingress.consumer_words()
        self._headers = ingress.headers()
        self._slots = ingress.slots()
        self._credits = 0
        self._flow = flow

    @property
    def slots(self) -> Tensor:
        """(depth, slot_rows, W) float32: the memory under every chunk."""
        return self._slots

    def available(self) -> int:
        """Chunks that can be taken out without waiting."""
        self._credits += self._ingress.published.collect()
        return self._credits

    def peek(self) -> Chunk | None:
        """The oldest published chunk, None when there is none; never waits.

        Raises:
            ProtocolError: the slot does not carry the chunk that is due.
        """
        if self._credits == 0:
            self._credits = self._ingress.published.collect()
            if self._credits == 0:
                return None
        sequence = self._own[Consumer.RELEASED]
        slot = self._ingress.slot_of(sequence)
        header = self._headers[slot]
        if header[Header.SEQUENCE] != sequence:
            raise ProtocolError(
                f"ingress slot {slot}: sequence", expected=sequence, found=header[Header.SEQUENCE]
            )
        rows = self._slots[slot, : header[Header.ROWS]]
        return Chunk(sequence, header[Header.TICK], bool(header[Header.LAST]), rows)

    def release(self, chunk: Chunk) -> None:
        """Give the oldest chunk's slot back to the writer."""
        if chunk.last:
            self.completed_tick = chunk.tick
        self._credits -= 1
        self._own[Consumer.RELEASED] = sequence_after(chunk.sequence)
        self._ingress.released.ring()

    def poll(self, append: Callable[[Tensor], None], through_tick: int) -> int:
        """Take out what is published of ticks up to `through_tick`; never waits.

        Args:
            append: given each chunk's rows (n, W), which it must copy.
            through_tick: later ticks stay in the line.

        Returns:
            Rows taken.
        """
        chunk = self.peek()
        if chunk is None or chunk.tick > through_tick:
            return 0
        with self._flow.tracer.span("Ingress Commit"):
            return self._take(chunk, append, through_tick)

    def _take(self, chunk: Chunk | None, append: Callable[[Tensor], None], through: int) -> int:
        taken = 0
        while chunk is not None and chunk.tick <= through:
            if chunk.rows.shape[0]:
                append(chunk.rows)
                taken += chunk.rows.shape[0]
            if chunk.last:
                self._flow.mark_all(FlowPoint.COMMIT, chunk.tick)
            self.release(chunk)
            chunk = self.peek()
        return taken

    def drain(
        self,
        append: Callable[[Tensor], None],
        through_tick: int,
        *,
        timeout_s: float = DRAIN_TIMEOUT_S,
        interrupt: Interrupt | None = None,
    ) -> int:
        """Take out exactly the rows of ticks up to `through_tick`, waiting for the last.

        Returns:
            Rows taken.

        Raises:
            PeerDiedError: the collector is gone before the tick was whole.
            StaleTickError: the tick was not whole within `timeout_s` seconds.
            StopRequestedError: `interrupt` was set.
            ProtocolError: a later tick began before this one was whole.
        """
        taken = self.poll(append, through_tick)
        while self.completed_tick < through_tick:
            oldest = self.peek()
            if oldest is None:
                self.await_published(through_tick, timeout_s, interrupt=interrupt)
            elif oldest.tick > through_tick:
                raise ProtocolError(
                    "ingress: tick before the last is whole",
                    expected=f"at most {through_tick}",
                    found=oldest.tick,
                )
            taken += self.poll(append, through_tick)
        return taken

    def await_published(
        self, tick: int, timeout_s: float | None, *, interrupt: Interrupt | None = None
    ) -> None:
        """Wait until `peek` has something that it had not before; errors as of `drain`."""
        rings = wait(self._ingress.published, self._peer, timeout_s, interrupt=interrupt)
        if rings == 0:
            raise StaleTickError(tick, timeout_s or 0.0, waiting_for="its replay rows")
        self._credits += rings

    def meanwhile(self, append: Callable[[Tensor], None], through_tick: int) -> Meanwhile:
        """`poll` whenever the producer finds no free slot, for `LearnerPort.await_request`."""

        def relieve() -> None:
            self._ingress.pressure.collect()
            self.poll(append, through_tick)

        return Meanwhile(self._ingress.pressure, relieve)

    def request_stop(self) -> None:
        """Ask the writer to publish nothing more, also where it waits for a free slot."""
        self._own[Consumer.STOPPED] = 1
        self._ingress.released.ring()

    def close(self) -> None:
        """Take nothing out any more; a writer that waits for a free slot returns."""
        self._own[Consumer.CLOSED] = 1
        self._ingress.released.ring()
