"""The words of the replay ingress: what each side writes, and how chunks are numbered.

Sequence numbers are signed words of shared memory, never negative: they wrap after 2**63.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import Tensor

SEQUENCES: Final = 1 << 63
"""Sequence numbers that there are."""


class Producer(IntEnum):
    """Words that the producer writes; counts, but for the first."""

    PUBLISHED = 0
    """Sequence number of the next chunk."""
    HIGH_WATER = 1
    WAITS = 2
    WAIT_NS = 3
    EARLY = 4
    DROPPED = 5
    CLOSED_RETURNS = 6
    STOP_RETURNS = 7


class Consumer(IntEnum):
    """Words that the consumer writes."""

    RELEASED = 0
    """Sequence number of the next chunk to be taken out."""
    CLOSED = 1
    STOPPED = 2


class Header(IntEnum):
    """Words of a slot's header, written by the producer."""

    SEQUENCE = 0
    TICK = 1
    ROWS = 2
    LAST = 3
    """Whether the tick is whole with this chunk."""


class WriteResult(Enum):
    """How a write ended."""

    COMPLETE = "complete"
    FULL = "full"
    """There was no free slot, and it was not to be waited for."""
    CLOSED = "closed"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Chunk:
    """The oldest published rows; a view of the slot, valid until it is released."""

    sequence: int
    tick: int
    last: bool
    """Whether the tick is whole with this chunk."""
    rows: Tensor
    """(n, W) float32, n from 0 to `slot_rows`."""


@dataclass(frozen=True)
class IngressCounters:
    """Exact accounting, by the names of the runtime manifest."""

    ingress_depth: int
    ingress_slot_rows: int
    published_sequence: int
    """Chunks published; the sequence number of the next one."""
    release_sequence: int
    """Chunks taken out; the sequence number of the next one."""
    occupancy: int
    """Chunks in the line now."""
    high_water_occupancy: int
    """Most chunks in the line at once, over the run."""
    backpressure_waits: int
    """Chunks that had to wait for a free slot."""
    early_returns: int
    """Writes that ended before all their chunks were published."""
    dropped_batches: int
    """Chunks that were not published for that reason."""
    closed_returns: int
    """Early returns because the line was closed."""
    stop_returns: int
    """Early returns because the writer was asked to stop."""
    backpressure_wait_s: float
    """Seconds waited for free slots."""


def chunks_between(earlier: int, later: int) -> int:
    """Chunks from one sequence number to another."""
    return (later - earlier) % SEQUENCES


def sequence_after(sequence: int) -> int:
    """The number that follows."""
    return (sequence + 1) % SEQUENCES
