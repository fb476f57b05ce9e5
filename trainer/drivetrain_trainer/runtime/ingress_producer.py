"""The writer's end of the replay ingress: rows into slots, and a wait where there is none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from drivetrain_trainer.runtime.doorbell import Peer, wait
from drivetrain_trainer.runtime.faults import PeerDiedError
from drivetrain_trainer.runtime.ingress_words import (
    Consumer,
    Header,
    Producer,
    WriteResult,
    chunks_between,
    sequence_after,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from drivetrain_trainer.runtime.ingress import ReplayIngress


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
