"""The replay ring of a rank: packed rows in one tensor, sampled without a host copy a field.

Rows come from an `IngressConsumer` in ticks: `commit` makes exactly the rows through a tick
visible, and iteration *k* samples from what is visible with a generator seeded by seed + *k*.
The same seed therefore gives the same batches on any machine load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from drivetrain_trainer.tracing import NULL_TRACER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from drivetrain_trainer.runtime.doorbell import Meanwhile
    from drivetrain_trainer.runtime.ingress_consumer import IngressConsumer
    from drivetrain_trainer.runtime.replay_layout import Batch, RowLayout
    from drivetrain_trainer.tracing import Tracer


class ReplayStateError(ValueError):
    """A stored ring that does not fit this one."""


class ReplayRing(Protocol):
    """What the learner asks of its replay, on any device.

    One iteration, with `consumer` attached and tick *t* requested::

        port.await_request(t, ..., meanwhile=replay.meanwhile(t - 1))
        replay.commit(t - 1)              # every row of earlier ticks is in, no later one
        port.respond(t, ...)
        batch = replay.sample(k, updates, batch_size)
        replay.prefetch(k + 1, updates, batch_size, through_tick=t)
    """

    layout: RowLayout
    capacity: int
    """Rows the ring holds."""

    @property
    def h2d_submit_ms(self) -> float | None:
        """CPU time of the latest span's submission to the device; None where there was none."""
        ...

    @property
    def size(self) -> int:
        """Rows that can be sampled."""
        ...

    def attach(self, source: IngressConsumer) -> None:
        """Take rows from here from now on; once."""
        ...

    def meanwhile(self, through_tick: int) -> Meanwhile | None:
        """What the waiting learner must do so that rows through this tick find room."""
        ...

    def commit(self, through_tick: int) -> int:
        """Make exactly the rows through this tick visible, waiting for them.

        The wait is short: whoever asks for the next tick has published this one's rows.

        Returns:
            Rows that can be sampled.

        Raises:
            PeerDiedError, StaleTickError, ProtocolError: as of `IngressConsumer.drain`.
        """
        ...

    def append(self, rows: Tensor) -> None:
        """Put rows (n, W) in, over the oldest ones where the ring is full; visible at once."""
        ...

    def prefetch(self, iteration: int, updates: int, batch_size: int, *, through_tick: int) -> None:
        """Announce the next `sample` and the tick through which it will see rows.

        An announcement that does not come true costs a gather and changes no batch.
        """
        ...

    def sample(self, iteration: int, updates: int, batch_size: int) -> Batch:
        """Rows drawn uniformly, with replacement, from all visible ones.

        Args:
            iteration: seeds the draw, together with the ring's seed.
            updates: U, at least 1.
            batch_size: B, at least 1.

        Returns:
            A batch (U, B, ...) on the ring's device, valid until the next call.

        Raises:
            ValueError: the ring is empty.
        """
        ...

    def sampled_ages(self) -> Tensor | None:
        """Rows written after each row of the last sample (U * B,) int64: 0 is the newest.

        Of what the ring held when it was drawn; on the ring's device, without waiting for it.
        None before the first sample.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Rows and position, on the CPU, for a checkpoint."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put a stored ring back, bit for bit.

        Raises:
            ReplayStateError: it is of another capacity or row width.
        """
        ...

    def close(self) -> None:
        """Release what the ring holds beyond its memory; a second time does nothing."""
        ...


def make_replay(
    layout: RowLayout,
    rows: int,
    device: torch.device,
    seed: int,
    *,
    tracer: Tracer = NULL_TRACER,
) -> ReplayRing:
    """A replay ring of `rows` rows on `device`; `seed` seeds its draws.

    A ring that has a thread of its own shows in `tracer` what it does.

    Raises:
        ValueError: a device that has no ring.
    """
    if device.type == "cpu":
        return CpuReplay(layout, rows, seed)
    if device.type == "cuda":
        # Imported here: a CPU run has no use for the thread and streams of the other one.
        from drivetrain_trainer.runtime.device_replay import DeviceReplay  # noqa: PLC0415

        return DeviceReplay.on_cuda(layout, rows, device, seed, tracer=tracer)
    raise ValueError(f"no replay ring for device {device}: cpu or cuda")


class RingPosition:
    """Where the next row goes, and how many can be sampled."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"replay ring: {capacity} rows, at least 1")
        self.capacity = capacity
        self.next = 0
        self.size = 0

    def spans(self, count: int) -> list[tuple[int, slice]]:
        """Where `count` new rows go: (first row of the ring, which of them), one span or two.

        Of more rows than the ring holds only the newest are placed.
        """
        skipped = max(count - self.capacity, 0)
        start = (self.next + skipped) % self.capacity
        first = min(count - skipped, self.capacity - start)
        spans = [(start, slice(skipped, skipped + first))]
        if skipped + first < count:
            spans.append((0, slice(skipped + first, count)))
        return spans

    def ages(self, index: Tensor, following: int) -> Tensor:
        """Rows written after those at `index` (n,) int64, when `following` was the next place."""
        return (following - 1 - index) % self.capacity

    def advance(self, count: int) -> None:
        """`count` rows have been placed."""
        self.next = (self.next + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def restore(self, state: Mapping[str, Any], width: int) -> None:
        """Take over the position in `state`; see `ReplayRing.load_state_dict`."""
        rows: Tensor = state["rows"]
        found = (int(state["capacity"]), rows.shape[1])
        if found != (self.capacity, width):
            raise ReplayStateError(
                f"stored replay holds {found[0]} rows of width {found[1]}; "
                f"this one {self.capacity} of width {width}"
            )
        size, following = rows.shape[0], int(state["next"])
        full = size == self.capacity
        if (
            size > self.capacity
            or not 0 <= following < self.capacity
            or not (full or following == size % self.capacity)
        ):
            raise ReplayStateError(
                f"stored replay of {self.capacity} rows holds {size}, the next one at {following}"
            )
        self.next, self.size = following, size


class CpuReplay:
    """The ring in ordinary memory; gathers into one preallocated batch."""

    h2d_submit_ms: float | None = None

    def __init__(self, layout: RowLayout, rows: int, seed: int) -> None:
        self.layout = layout
        self.capacity = rows
        self._position = RingPosition(rows)
        # Not zeroed: pages are taken from the system as the ring fills.
        self._rows = torch.empty(rows, layout.width)
        self._seed = seed
        self._generator = torch.Generator()
        self._slot = torch.empty(0, layout.width)
        self._index = torch.empty(0, dtype=torch.int64)
        self._drawn_at: int | None = None
        self._source: IngressConsumer | None = None

    @property
    def size(self) -> int:
        """Rows that can be sampled."""
        return self._position.size

    def attach(self, source: IngressConsumer) -> None:
        """See `ReplayRing.attach`."""
        self._source = source

    def meanwhile(self, through_tick: int) -> Meanwhile:
        """See `ReplayRing.meanwhile`: rows are taken out by the waiting thread itself."""
        return self._attached().meanwhile(self.append, through_tick)

    def commit(self, through_tick: int) -> int:
        """See `ReplayRing.commit`."""
        self._attached().drain(self.append, through_tick)
        return self.size

    def append(self, rows: Tensor) -> None:
        """See `ReplayRing.append`."""
        for start, part in self._position.spans(rows.shape[0]):
            piece = rows[part]
            self._rows[start : start + piece.shape[0]].copy_(piece)
        self._position.advance(rows.shape[0])

    def prefetch(self, iteration: int, updates: int, batch_size: int, *, through_tick: int) -> None:
        """See `ReplayRing.prefetch`: the gather is cheap here, there is nothing to prepare."""

    def sample(self, iteration: int, updates: int, batch_size: int) -> Batch:
        """See `ReplayRing.sample`."""
        if self.size == 0:
            raise ValueError("replay ring is empty")
        count = updates * batch_size
        if self._index.shape[0] != count:
            self._index = torch.empty(count, dtype=torch.int64)
            self._slot = torch.empty(count, self.layout.width)
        self._generator.manual_seed(self._seed + iteration)
        torch.randint(0, self.size, (count,), generator=self._generator, out=self._index)
        self._drawn_at = self._position.next
        torch.index_select(self._rows, 0, self._index, out=self._slot)
        return self.layout.view(self._slot.view(updates, batch_size, self.layout.width))

    def sampled_ages(self) -> Tensor | None:
        """See `ReplayRing.sampled_ages`."""
        if self._drawn_at is None:
            return None
        return self._position.ages(self._index, self._drawn_at)

    def state_dict(self) -> dict[str, Any]:
        """See `ReplayRing.state_dict`; the rows are shared, to be stored before the next append.

        A ring that is not full is copied: storing a part of a tensor stores all of it.
        """
        full = self.size == self.capacity
        return {
            "rows": self._rows if full else self._rows[: self.size].clone(),
            "next": self._position.next,
            "capacity": self.capacity,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `ReplayRing.load_state_dict`."""
        self._position.restore(state, self.layout.width)
        self._rows[: self.size].copy_(state["rows"])

    def close(self) -> None:
        """See `ReplayRing.close`."""

    def _attached(self) -> IngressConsumer:
        if self._source is None:
            raise RuntimeError("replay ring: no ingress attached")
        return self._source
