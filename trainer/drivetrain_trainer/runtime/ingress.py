"""The bounded first-in first-out line of packed rows from collector to replay.

`depth` slots of `slot_rows` rows lie in shared memory. A vector of transitions is published
as contiguous chunks, one slot each; the last one is marked, so that the reader knows when a
tick is whole. It may be written in parts: a slot is filled before it is published, so the
chunks are the same ones however many parts there are. Where no slot is free the writer waits,
and the wait is counted.

Every counter here counts chunks, not vectors. Sequence numbers are 63 bits wide and wrap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import torch

from drivetrain_trainer.runtime.doorbell import Doorbell
from drivetrain_trainer.runtime.ingress_consumer import IngressConsumer
from drivetrain_trainer.runtime.ingress_producer import IngressProducer
from drivetrain_trainer.runtime.ingress_words import (
    Consumer,
    IngressCounters,
    Producer,
    chunks_between,
)
from drivetrain_trainer.runtime.shared_memory import CACHE_LINE, WORD, MemoryPlan, SharedMemory
from drivetrain_trainer.tracing import NO_FLOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from drivetrain_trainer.runtime.doorbell import Peer
    from drivetrain_trainer.tracing import TickFlow

_LINE: Final = CACHE_LINE // WORD


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
