"""The thread of a device ring, `replay_device_sync`: it executes orders, one after the other.

An order takes the rows through a tick from the ingress, copies them on a side stream, moves the
write position once the copy's event has passed, and, where a batch was announced, gathers it
into the slot that the learner does not use. Only then does the collector get its slots back, and
only then can a gather see the rows. The first error ends the work: every later order gets it.
"""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from drivetrain_trainer.runtime.doorbell import Interrupt
from drivetrain_trainer.runtime.faults import StaleTickError
from drivetrain_trainer.runtime.ingress_consumer import DRAIN_TIMEOUT_S
from drivetrain_trainer.runtime.replay import RingPosition
from drivetrain_trainer.tracing import NULL_TRACER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from torch import Tensor

    from drivetrain_trainer.runtime.ingress_consumer import IngressConsumer
    from drivetrain_trainer.runtime.side_stream import Event, SideStream
    from drivetrain_trainer.tracing import Tracer

THREAD_NAME: Final = "replay_device_sync"
PATIENCE_S: Final = 2 * DRAIN_TIMEOUT_S
"""Longer than the thread itself waits for rows: only a device that hangs takes so long."""
CLOSE_TIMEOUT_S: Final = 4.0
"""For the order in progress when the ring is closed; its wait for rows ends at once."""
_THREAD_ORDER: Final = 1
_TRACK: Final = "GPU replay stream"


@dataclass(frozen=True)
class Draw:
    """What decides a batch, beside the rows that it sees."""

    iteration: int
    updates: int
    batch_size: int

    @property
    def count(self) -> int:
        """Rows of it."""
        return self.updates * self.batch_size


@dataclass(frozen=True)
class Gathered:
    """A batch in its slot."""

    rows: Tensor
    """(U * B, W)."""
    index: Tensor
    """(U * B,) their places in the ring."""
    following: int
    """The place of the next row when they were drawn."""
    ready: Event
    """Passed once they are there."""


@dataclass(frozen=True)
class Outcome:
    """What an order came to."""

    size: int
    """Rows in the ring after it."""
    gathered: Gathered | None
    """None where none was asked for, or the ring is empty."""


@dataclass(frozen=True)
class _Order:
    through_tick: int
    draw: Draw | None
    slot: int
    reusable: Event | None
    """Passed once the learner's work on the slot to be filled is done."""
    done: Future[Outcome]


class ReplayWorker:
    """The rows of a ring, two batch slots, and the thread that fills them."""

    def __init__(
        self,
        shape: tuple[int, int],
        seed: int,
        *,
        device: torch.device,
        stream: SideStream,
        tracer: Tracer = NULL_TRACER,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Start the thread.

        Args:
            shape: Rows and columns of the ring.
            seed: Of its draws.
            device: Where the rows lie.
            stream: Carries copies and gathers.
            tracer: Shows what the thread does.
            patience_s: Seconds that `result` waits for an order.
        """
        self.h2d_submit_ms: float | None = None
        """CPU time of the latest copy's submission."""
        self._position = RingPosition(shape[0])
        self._rows = torch.empty(shape, device=device)
        self._seed = seed
        self._device = device
        self._stream = stream
        self._tracer = tracer
        self._patience_s = patience_s
        self._generator = torch.Generator(device)
        self._slots: list[Tensor | None] = [None, None]
        # The rows may lie where something was that the learner's stream has still to finish.
        stream.wait(stream.record_main())
        self._source: IngressConsumer | None = None
        self._broken: Exception | None = None
        self._closed = False
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._closing = Interrupt()
        self._thread = threading.Thread(target=self._work, name=THREAD_NAME, daemon=True)
        self._thread.start()

    def attach(self, source: IngressConsumer) -> None:
        """Take rows from here; page-locks the ingress for the copies."""
        self._stream.pin(source.slots)
        self._source = source

    def order(self, through_tick: int, draw: Draw | None = None, slot: int = 0) -> Future[Outcome]:
        """Have the rows through a tick taken, then a batch gathered into a slot; never waits.

        Raises:
            RuntimeError: the ring is closed, or there is nothing to take rows from.
        """
        if self._closed:
            raise RuntimeError("replay ring is closed")
        if self._source is None and through_tick >= 0:
            raise RuntimeError("replay ring: no ingress attached")
        # Whatever the learner has issued so far includes its last use of the slot.
        reusable = self._stream.record_main() if draw is not None else None
        order = _Order(through_tick, draw, slot, reusable, Future())
        self._orders.put(order)
        return order.done

    def result(self, done: Future[Outcome], tick: int) -> Outcome:
        """Wait for an order; `tick` is named where it does not end.

        Raises:
            StaleTickError: the device, or the thread, hangs.
            Exception: what the order, or one before it, failed with.
        """
        started = time.monotonic()
        try:
            return done.result(self._patience_s)
        except TimeoutError:
            if done.done():  # the order failed with one, or ended just now
                return done.result()
            waited = time.monotonic() - started
            raise StaleTickError(tick, waited, waiting_for="the device's replay thread") from None

    def append(self, rows: Tensor) -> int:
        """Put rows in from the caller's thread, which has waited for every order; rows then."""
        self._copy(rows)
        return self._position.size

    def ages(self, gathered: Gathered) -> Tensor:
        """Rows written after each row of a batch, on the device."""
        self._stream.hand_over(gathered.index, gathered.ready)
        return self._position.ages(gathered.index, gathered.following)

    def hand_over(self, gathered: Gathered) -> Tensor:
        """The rows of a batch, for work that the caller issues from now on."""
        self._stream.hand_over(gathered.rows, gathered.ready)
        return gathered.rows

    def state_dict(self) -> dict[str, Any]:
        """See `ReplayRing.state_dict`; the caller has waited for every order."""
        with self._stream.use():
            rows = self._rows[: self._position.size].to("cpu", copy=True)
        return {
            "rows": rows,
            "next": self._position.next,
            "capacity": self._position.capacity,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> int:
        """See `ReplayRing.load_state_dict`; the caller has waited for every order. Rows then."""
        self._position.restore(state, self._rows.shape[1])
        with self._stream.use():
            self._rows[: self._position.size].copy_(state["rows"])
            self._stream.record().synchronize()
        return self._position.size

    def close(self) -> None:
        """End the thread and unlock the ingress; a second time does nothing.

        Raises:
            TimeoutError: the device does not finish the order in progress; its memory stays.
        """
        self._closed = True
        if self._thread.is_alive():
            self._closing.set()
            self._orders.put(None)
            self._thread.join(CLOSE_TIMEOUT_S)
            if self._thread.is_alive():
                raise TimeoutError(f"{THREAD_NAME} still waits for {self._device}")
        self._stream.unpin()
        self._closing.close()

    def _work(self) -> None:
        self._tracer.thread(THREAD_NAME, _THREAD_ORDER)
        while (order := self._orders.get()) is not None:
            try:
                order.done.set_result(self._execute(order))
            except Exception as error:  # noqa: BLE001  # raised again where it is waited for
                self._broken = error
                order.done.set_exception(error)

    def _execute(self, order: _Order) -> Outcome:
        if self._broken is not None:
            raise self._broken
        if self._source is not None:
            with self._tracer.span("Replay Rows"):
                self._source.drain(self._copy, order.through_tick, interrupt=self._closing)
        return Outcome(self._position.size, self._gather(order))

    def _copy(self, rows: Tensor) -> None:
        tracer = self._tracer
        cpu = tracer.cpu_ns()
        started = time.perf_counter_ns()
        with self._stream.use():
            begin = tracer.gpu_mark()
            for start, part in self._position.spans(rows.shape[0]):
                piece = rows[part]
                self._rows[start : start + piece.shape[0]].copy_(piece, non_blocking=True)
            tracer.gpu_complete("Replay H2D", _TRACK, begin)
            copied = self._stream.record()
        submitted = time.perf_counter_ns()
        self.h2d_submit_ms = (submitted - started) * 1e-6
        tracer.complete("Replay H2D Submit", started, submitted, cpu)
        with tracer.span("Replay H2D Wait"):
            copied.synchronize()
        self._position.advance(rows.shape[0])

    def _gather(self, order: _Order) -> Gathered | None:
        draw = order.draw
        if draw is None or self._position.size == 0:
            return None
        with self._tracer.span("Replay Gather Submit"), self._stream.use():
            if order.reusable is not None:
                self._stream.wait(order.reusable)
            slot = self._slot(order.slot, draw.count)
            begin = self._tracer.gpu_mark()
            self._generator.manual_seed(self._seed + draw.iteration)
            index = torch.randint(
                0,
                self._position.size,
                (draw.count,),
                generator=self._generator,
                device=self._device,
            )
            torch.index_select(self._rows, 0, index, out=slot)
            self._tracer.gpu_complete("Replay Gather", _TRACK, begin)
            ready = self._stream.record()
        return Gathered(slot, index, self._position.next, ready)

    def _slot(self, number: int, count: int) -> Tensor:
        """A slot, made anew where the batch is of another size; its memory is the side stream's."""
        slot = self._slots[number]
        if slot is None or slot.shape[0] != count:
            slot = torch.empty(count, self._rows.shape[1], device=self._device)
            self._slots[number] = slot
        return slot
