"""The replay ring in a device's memory, filled and gathered beside the learner's work.

The learner orders; a thread executes (`ReplayWorker`). What a batch sees is fixed by its order,
not by when the thread gets to it: the rows through its tick, none later. There are two batch
slots: the *hot* one holds the batch that the learner was given last, and the next batch is
always gathered into the other, *cold* one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from drivetrain_trainer.runtime.replay_worker import PATIENCE_S, Draw, ReplayWorker
from drivetrain_trainer.runtime.side_stream import CudaSideStream
from drivetrain_trainer.tracing import NULL_TRACER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    import torch
    from torch import Tensor

    from drivetrain_trainer.runtime.ingress_consumer import IngressConsumer
    from drivetrain_trainer.runtime.replay_layout import Batch, RowLayout
    from drivetrain_trainer.runtime.replay_worker import Gathered, Outcome
    from drivetrain_trainer.runtime.side_stream import SideStream
    from drivetrain_trainer.tracing import Tracer

_NOTHING: Final = -1
"""Through no tick."""


@dataclass(frozen=True)
class _Announced:
    draw: Draw
    through_tick: int
    done: Future[Outcome]


class DeviceReplay:
    """The learner's side of the ring; see `ReplayRing`. Used by one thread."""

    def __init__(
        self,
        layout: RowLayout,
        rows: int,
        seed: int,
        *,
        device: torch.device,
        stream: SideStream,
        tracer: Tracer = NULL_TRACER,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.layout = layout
        self.capacity = rows
        self._worker = ReplayWorker(
            (rows, layout.width),
            seed,
            device=device,
            stream=stream,
            tracer=tracer,
            patience_s=patience_s,
        )
        self._hot = 0
        """The slot of the batch that was given out last."""
        self._size = 0
        self._ordered_tick = _NOTHING
        """Rows through this tick are in the ring, or on order."""
        self._visible_tick = _NOTHING
        """Rows through this tick have been waited for."""
        self._newest: Future[Outcome] | None = None
        self._announced: _Announced | None = None
        self._sampled: Gathered | None = None

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
    def h2d_submit_ms(self) -> float | None:
        """See `ReplayRing.h2d_submit_ms`."""
        return self._worker.h2d_submit_ms

    @property
    def size(self) -> int:
        """See `ReplayRing.size`: rows on order, or on their way, do not count."""
        return self._size

    def attach(self, source: IngressConsumer) -> None:
        """See `ReplayRing.attach`; page-locks the ingress for the copies."""
        self._worker.attach(source)
        self._ordered_tick = self._visible_tick = source.completed_tick

    def meanwhile(self, through_tick: int) -> None:
        """See `ReplayRing.meanwhile`: the thread takes the rows, the learner need not."""
        if through_tick > self._ordered_tick:
            self._order(through_tick)

    def commit(self, through_tick: int) -> int:
        """See `ReplayRing.commit`."""
        if through_tick > self._visible_tick:
            self.meanwhile(through_tick)
            self._see_all()
        return self._size

    def append(self, rows: Tensor) -> None:
        """See `ReplayRing.append`; returns once the rows are on the device."""
        self._see_all()
        self._newest = self._announced = None
        self._size = self._worker.append(rows)

    def prefetch(self, iteration: int, updates: int, batch_size: int, *, through_tick: int) -> None:
        """See `ReplayRing.prefetch`: the gather is issued as soon as the tick is whole."""
        draw = Draw(iteration, updates, batch_size)
        through = max(through_tick, self._ordered_tick)
        self._announced = _Announced(draw, through, self._order(through, draw))

    def sample(self, iteration: int, updates: int, batch_size: int) -> Batch:
        """See `ReplayRing.sample`; the learner's stream waits for the gather, its thread not."""
        draw = Draw(iteration, updates, batch_size)
        announced, self._announced = self._announced, None
        if announced is None or (announced.draw, announced.through_tick) != (
            draw,
            self._ordered_tick,
        ):
            # Gathered into the same slot as what was announced: that is nobody's any more.
            self._order(self._ordered_tick, draw)
        gathered = self._see_all()
        if gathered is None:
            raise ValueError("replay ring is empty")
        self._hot = 1 - self._hot
        self._sampled = gathered
        rows = self._worker.hand_over(gathered)
        return self.layout.view(rows.view(updates, batch_size, self.layout.width))

    def sampled_ages(self) -> Tensor | None:
        """See `ReplayRing.sampled_ages`."""
        return None if self._sampled is None else self._worker.ages(self._sampled)

    def state_dict(self) -> dict[str, Any]:
        """See `ReplayRing.state_dict`; a copy on the CPU, of the rows on order as well."""
        self._see_all()
        return self._worker.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `ReplayRing.load_state_dict`."""
        self._see_all()
        self._newest = self._announced = None
        self._size = self._worker.load_state_dict(state)

    def close(self) -> None:
        """End the thread and unlock the ingress; a second time does nothing.

        Raises:
            TimeoutError: the device hangs.
        """
        self._worker.close()

    def _order(self, through_tick: int, draw: Draw | None = None) -> Future[Outcome]:
        self._newest = self._worker.order(through_tick, draw, slot=1 - self._hot)
        self._ordered_tick = through_tick
        return self._newest

    def _see_all(self) -> Gathered | None:
        """Wait for every order; the batch of the newest one, where it was to gather one."""
        if self._newest is None:
            return None
        outcome = self._worker.result(self._newest, self._ordered_tick)
        self._size = outcome.size
        self._visible_tick = self._ordered_tick
        return outcome.gathered
