"""What the collector reports of itself: named float64 values under a sequence lock.

One writer that never waits, and one reader that takes whole reports only; the newest one wins.
Names are agreed in the ready handshake and may grow (an episode may end for a reason that has
not been seen before): the board holds them beside the values.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from drivetrain_trainer.runtime.sequence_lock import HEADER_WORDS, Record
from drivetrain_trainer.runtime.shared_memory import CACHE_LINE, MemoryPlan, SharedMemory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from drivetrain_trainer.runtime.doorbell import Peer

MAX_NAMES: Final = 512
"""Names of a board."""
NAME_BYTES: Final = 120
"""Bytes of a name in UTF-8."""
MAX_STATE_BYTES: Final = 16_384
"""Bytes of one random generator's state; a CPU generator's has 5,056."""

_FLOAT: Final = 8


@dataclass(frozen=True)
class BoardReport:
    """One whole report."""

    tick: int
    """The tick that comes next."""
    values: Mapping[str, float]


@dataclass(frozen=True)
class RngSnapshot:
    """State of the environments' random generator."""

    tick: int
    """The tick that comes next when this state is put back."""
    state: Tensor
    """(bytes,) uint8 on the CPU."""


class MetricsBoard:
    """The shared board; the collector writes, the learner reads."""

    def __init__(self, *, memory: SharedMemory | None = None) -> None:
        plan = MemoryPlan()
        headers = plan.words(2 * HEADER_WORDS)
        values_bytes = 2 * MAX_NAMES * _FLOAT
        values = plan.reserve(values_bytes)
        names = plan.reserve(MAX_NAMES * (NAME_BYTES + 1))
        state = plan.reserve(MAX_STATE_BYTES)
        self.memory = memory or SharedMemory.create(plan.nbytes, "metrics")
        self._report = Record(self.memory, headers, values, values_bytes)
        self._snapshot = Record(self.memory, headers + CACHE_LINE, state, MAX_STATE_BYTES)
        self._names = self.memory.octets(names, MAX_NAMES * (NAME_BYTES + 1))
        self._known: list[str] = []
        self._places: dict[str, int] = {}
        self._seen = 0

    @classmethod
    def create(cls) -> MetricsBoard:
        """A board for a collector."""
        return cls()

    @property
    def names(self) -> tuple[str, ...]:
        """Names that this side knows, in their places' order."""
        return tuple(self._known)

    def agree(self, names: Sequence[str]) -> None:
        """Writer: fix the places of these names; a report need not give each a value.

        Raises:
            ValueError: a name is too long, or there are too many.
        """
        for name in names:
            if name not in self._places:
                self._add(name)

    def publish(self, tick: int, values: Mapping[str, float]) -> None:
        """Writer: replace the report; names without a value are absent from it.

        Args:
            tick: the one that comes next.
            values: by name; a name that is new is added.
        """
        self.agree([name for name in values if name not in self._places])
        size = len(self._known)
        record = array("d", bytes(2 * size * _FLOAT))
        for name, value in values.items():
            place = self._places[name]
            record[place] = value
            record[size + place] = 1.0
        self._report.write(tick, record.tobytes())

    def read(
        self, writer: Peer | None = None, *, patience_s: float | None = None
    ) -> BoardReport | None:
        """Reader: the newest whole report, None where there is none since the last read.

        Args:
            writer: The collector's process; a report that it is writing is waited for as long
                as it lives, within bounds.
            patience_s: Seconds of that, where it cannot write any more.

        Raises:
            PeerDiedError: the writer died in the middle of a report.
            StaleTickError: it is stopped in the middle of one.
        """
        found = self._report.read(self._seen, writer=writer, patience_s=patience_s)
        if found is None:
            return None
        self._seen = found.version
        record = array("d", found.data)
        size = len(record) // 2
        self._read_names(size)
        values = {
            self._known[place]: record[place] for place in range(size) if record[size + place]
        }
        return BoardReport(found.tick, values)

    def write_snapshot(self, tick: int, state: Tensor) -> None:
        """Writer: replace the random generator's state; `tick` comes next.

        Raises:
            ValueError: `state` is not a uint8 vector on the CPU, or is larger than
                `MAX_STATE_BYTES`.
        """
        if state.dtype != torch.uint8 or state.dim() != 1 or state.device.type != "cpu":
            raise ValueError("a generator state is a vector of uint8 on the CPU")
        if state.numel() > MAX_STATE_BYTES:
            raise ValueError(f"generator state of {state.numel()} bytes, at most {MAX_STATE_BYTES}")
        self._snapshot.write(tick, bytes(state.tolist()))

    def read_snapshot(self, writer: Peer | None = None) -> RngSnapshot | None:
        """Reader: the newest state, None where none was written; waits and errors as of `read`."""
        found = self._snapshot.read(writer=writer)
        if found is None:
            return None
        return RngSnapshot(found.tick, torch.frombuffer(found.data, dtype=torch.uint8))

    def close(self) -> None:
        """Close the memory; a second time does nothing."""
        self.memory.close()

    def _add(self, name: str) -> None:
        encoded = name.encode()
        if not 1 <= len(encoded) <= NAME_BYTES:
            raise ValueError(f"metric name {name!r}: {len(encoded)} bytes, 1 to {NAME_BYTES}")
        place = len(self._known)
        if place == MAX_NAMES:
            raise ValueError(f"metric name {name!r}: the board holds {MAX_NAMES} names")
        # Written before any report counts it, and never again: readers need no lock for it.
        start = place * (NAME_BYTES + 1)
        self._names[start] = len(encoded)
        self._names[start + 1 : start + 1 + len(encoded)] = encoded
        self._known.append(name)
        self._places[name] = place

    def _read_names(self, count: int) -> None:
        for place in range(len(self._known), count):
            start = place * (NAME_BYTES + 1)
            length = self._names[start]
            name = bytes(self._names[start + 1 : start + 1 + length]).decode()
            self._known.append(name)
            self._places[name] = place

    def __getstate__(self) -> dict[str, object]:
        return {"memory": self.memory}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a received object is built like a new one
