"""The reader's end of the replay ingress: rows out of slots, whole ticks at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_trainer.runtime.doorbell import Interrupt, Meanwhile, Peer, wait
from drivetrain_trainer.runtime.faults import ProtocolError, StaleTickError
from drivetrain_trainer.runtime.ingress_words import Chunk, Consumer, Header, sequence_after
from drivetrain_trainer.tracing import NO_FLOW, FlowPoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from drivetrain_trainer.runtime.ingress import ReplayIngress
    from drivetrain_trainer.tracing import TickFlow

DRAIN_TIMEOUT_S: Final = 60.0
"""A collector that has asked for the next tick has published this one already."""


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
