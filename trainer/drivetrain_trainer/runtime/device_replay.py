"""The replay ring in a device's memory, filled and gathered beside the learner's work.

A thread, `replay_device_sync`, executes *orders* one after the other: take the rows through a
tick from the ingress, copy them on a side stream, move the write position once the copy's
event has passed, and, where a batch was announced, gather it into the colder of two slots.
What a batch sees is fixed by its order, not by when the thread gets to it: the rows through
its tick, none later.
"""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from drivetrain_trainer.runtime.doorbell import Interrupt
from drivetrain_trainer.runtime.faults import StaleTickError, StopRequestedError
from drivetrain_trainer.runtime.ingress_consumer import DRAIN_TIMEOUT_S
from drivetrain_trainer.runtime.replay import RingPosition
from drivetrain_trainer.tracing import NULL_TRACER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from torch import Tensor

    from drivetrain_trainer.runtime.ingress_consumer import IngressConsumer
    from drivetrain_trainer.runtime.replay_layout import Batch, RowLayout
    from drivetrain_trainer.tracing import Tracer

THREAD_NAME: Final = "replay_device_sync"
_THREAD_ORDER: Final = 1
_TRACK: Final = "GPU replay stream"
_NOTHING: Final = -1
"""Through no tick."""


class Event(Protocol):
    """A point in a stream."""

    def synchronize(self) -> None:
        """Block this thread until the stream has passed it."""
        ...


class SideStream(Protocol):
    """The device operations that the ring needs beyond tensors."""

    def use(self) -> AbstractContextManager[object]:
        """Issue work on the side stream within the block."""
        ...

    def record(self) -> Event:
        """An event after all work issued on the side stream."""
        ...

    def record_main(self) -> Event:
        """An event after all work issued on the calling thread's stream."""
        ...

    def wait(self, event: Event) -> None:
        """Work issued on the side stream from now on waits for `event`."""
        ...

    def hand_over(self, memory: Tensor, ready: Event) -> None:
        """`memory`, filled on the side stream until `ready`, is used on the caller's from now."""
        ...

    def pin(self, memory: Tensor) -> None:
        """Page-lock shared memory, so that copies from it need no staging."""
        ...

    def unpin(self) -> None:
        """Undo `pin`."""
        ...


class CudaSideStream:
    """A CUDA stream beside the current one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's stub lacks it
        self._pinned: list[Tensor] = []

    def use(self) -> AbstractContextManager[object]:
        """See `SideStream.use`."""
        return torch.cuda.stream(self._stream)

    def record(self) -> Event:
        """See `SideStream.record`."""
        event: Event = self._stream.record_event()
        return event

    def record_main(self) -> Event:
        """See `SideStream.record_main`."""
        event: Event = torch.cuda.current_stream(self._device).record_event()
        return event

    def wait(self, event: Event) -> None:
        """See `SideStream.wait`."""
        assert isinstance(event, torch.cuda.Event)
        self._stream.wait_event(event)

    def hand_over(self, memory: Tensor, ready: Event) -> None:
        """See `SideStream.hand_over`."""
        assert isinstance(ready, torch.cuda.Event)
        main = torch.cuda.current_stream(self._device)
        main.wait_event(ready)
        # Its memory is the side stream's: not to be given out again while the learner's works.
        memory.record_stream(main)

    def pin(self, memory: Tensor) -> None:
        """See `SideStream.pin`."""
        runtime = _cuda_runtime()
        nbytes = memory.numel() * memory.element_size()
        with torch.cuda.device(self._device):
            torch.cuda.check_error(runtime.cudaHostRegister(memory.data_ptr(), nbytes, 0))
        self._pinned.append(memory)

    def unpin(self) -> None:
        """See `SideStream.unpin`."""
        while self._pinned:
            memory = self._pinned.pop()
            torch.cuda.check_error(_cuda_runtime().cudaHostUnregister(memory.data_ptr()))


def _cuda_runtime() -> Any:  # noqa: ANN401  # a C module
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch's stub lacks it


@dataclass(frozen=True)
class _Draw:
    iteration: int
    updates: int
    batch_size: int


@dataclass(frozen=True)
class _Gathered:
    rows: Tensor
    """(U * B, W)."""
    index: Tensor
    """(U * B,) their places in the ring."""
    following: int
    """The place of the next row when they were drawn."""
    ready: Event


@dataclass(frozen=True)
class _Order:
    through_tick: int
    draw: _Draw | None
    reusable: Event | None
    """Passed once the learner's work on the slot to be filled is done."""
    done: Future[_Gathered | None]


class DeviceReplay:
    """The ring, its thread, and its two batch slots."""

    def __init__(
        self,
        layout: RowLayout,
        rows: int,
        seed: int,
        *,
        device: torch.device,
        stream: SideStream,
        tracer: Tracer = NULL_TRACER,
    ) -> None:
        self.layout = layout
        self.capacity = rows
        self.h2d_submit_ms: float | None = None
        self._position = RingPosition(rows)
        self._device = device
        self._stream = stream
        self._tracer = tracer
        self._rows = torch.empty(rows, layout.width, device=device)
        self._seed = seed
        self._generator = torch.Generator(device)
        self._slots: list[Tensor] = []
        self._cold = 0
        self._ordered_tick = _NOTHING
        self._announced: tuple[_Draw, Future[_Gathered | None]] | None = None
        self._sampled: _Gathered | None = None
        self._source: IngressConsumer | None = None
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._closing = Interrupt()
        self._thread = threading.Thread(target=self._work, name=THREAD_NAME, daemon=True)
        self._thread.start()

    @classmethod
    def on_cuda(
        cls,
        layout: RowLayout,
        rows: int,
        device: torch.device,
        seed: int,
        *,
        tracer: Tracer = NULL_TRACER,
    ) -> DeviceReplay:
        """A ring on a CUDA device."""
        stream = CudaSideStream(device)
        return cls(layout, rows, seed, device=device, stream=stream, tracer=tracer)

    @property
    def size(self) -> int:
        """Rows that can be sampled."""
        return self._position.size

    def attach(self, source: IngressConsumer) -> None:
        """See `ReplayRing.attach`; page-locks the ingress for the copies."""
        self._stream.pin(source.slots)
        self._source = source
        self._ordered_tick = source.completed_tick

    def meanwhile(self, through_tick: int) -> None:
        """See `ReplayRing.meanwhile`: the thread takes the rows, the learner need not."""
        if through_tick > self._ordered_tick:
            self._order(through_tick, None)

    def commit(self, through_tick: int, *, interrupt: Interrupt | None = None) -> int:
        """See `ReplayRing.commit`."""
        if interrupt is not None and interrupt.is_set():
            raise StopRequestedError
        if through_tick > self._ordered_tick:
            self._result(self._order(through_tick, None))
        elif self._announced is not None:
            self._result(self._announced[1])
        else:
            self._result(self._order(self._ordered_tick, None))
        return self.size

    def append(self, rows: Tensor) -> None:
        """See `ReplayRing.append`; returns once the rows are on the device."""
        self._result(self._order(self._ordered_tick, None))
        self._copy(rows)

    def prefetch(self, iteration: int, updates: int, batch_size: int, *, through_tick: int) -> None:
        """See `ReplayRing.prefetch`: the gather is issued as soon as the tick is whole."""
        draw = _Draw(iteration, updates, batch_size)
        self._announced = (draw, self._order(through_tick, draw))

    def sample(self, iteration: int, updates: int, batch_size: int) -> Batch:
        """See `ReplayRing.sample`; the learner's stream waits for the gather, its thread not."""
        draw = _Draw(iteration, updates, batch_size)
        announced, self._announced = self._announced, None
        if announced is not None and announced[0] == draw:
            gathered = self._result(announced[1])
        else:
            if announced is not None:
                self._result(announced[1])
            gathered = self._result(self._order(self._ordered_tick, draw))
        if gathered is None:
            raise ValueError("replay ring is empty")
        self._stream.hand_over(gathered.rows, gathered.ready)
        self._sampled = gathered
        return self.layout.view(gathered.rows.view(updates, batch_size, self.layout.width))

    def sampled_ages(self) -> Tensor | None:
        """See `ReplayRing.sampled_ages`."""
        sampled = self._sampled
        if sampled is None:
            return None
        self._stream.hand_over(sampled.index, sampled.ready)
        return self._position.ages(sampled.index, sampled.following)

    def state_dict(self) -> dict[str, Any]:
        """See `ReplayRing.state_dict`; a copy on the CPU."""
        self._result(self._order(self._ordered_tick, None))
        return {
            "rows": self._rows[: self.size].to("cpu", copy=True),
            "next": self._position.next,
            "capacity": self.capacity,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `ReplayRing.load_state_dict`."""
        self._result(self._order(self._ordered_tick, None))
        self._position.restore(state, self.layout.width)
        self._rows[: self.size].copy_(state["rows"])

    def close(self) -> None:
        """End the thread and unlock the ingress; a second time does nothing."""
        if self._thread.is_alive():
            self._closing.set()
            self._orders.put(None)
            self._thread.join()
        self._stream.unpin()
        self._closing.close()

    def _order(self, through_tick: int, draw: _Draw | None) -> Future[_Gathered | None]:
        reusable = None
        if draw is not None:
            # All the learner has issued so far includes the last use of the colder slot.
            reusable = self._stream.record_main()
        order = _Order(through_tick, draw, reusable, Future())
        self._ordered_tick = max(self._ordered_tick, through_tick)
        self._orders.put(order)
        return order.done

    def _result(self, done: Future[_Gathered | None]) -> _Gathered | None:
        started = time.monotonic()
        try:
            return done.result(2 * DRAIN_TIMEOUT_S)
        except TimeoutError:
            waited = time.monotonic() - started
            raise StaleTickError(
                self._ordered_tick, waited, waiting_for="the device's replay thread"
            ) from None

    def _work(self) -> None:
        self._tracer.thread(THREAD_NAME, _THREAD_ORDER)
        while (order := self._orders.get()) is not None:
            try:
                self._take(order.through_tick)
                order.done.set_result(self._gather(order))
            except Exception as error:  # noqa: BLE001  # raised again where it is waited for
                order.done.set_exception(error)

    def _take(self, through_tick: int) -> None:
        if self._source is None:
            return
        with self._tracer.span("Replay Rows"):
            self._source.drain(self._copy, through_tick, interrupt=self._closing)

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

    def _gather(self, order: _Order) -> _Gathered | None:
        draw = order.draw
        if draw is None or self.size == 0:
            return None
        count = draw.updates * draw.batch_size
        with self._tracer.span("Replay Gather Submit"), self._stream.use():
            if not self._slots or self._slots[0].shape[0] != count:
                self._slots = [
                    torch.empty(count, self.layout.width, device=self._device) for _ in range(2)
                ]
            slot = self._slots[self._cold]
            if order.reusable is not None:
                self._stream.wait(order.reusable)
            begin = self._tracer.gpu_mark()
            self._generator.manual_seed(self._seed + draw.iteration)
            index = torch.randint(
                0, self.size, (count,), generator=self._generator, device=self._device
            )
            torch.index_select(self._rows, 0, index, out=slot)
            self._tracer.gpu_complete("Replay Gather", _TRACK, begin)
            ready = self._stream.record()
        self._cold = 1 - self._cold
        return _Gathered(slot, index, self._position.next, ready)
