"""Bytes of shared memory that one process writes and another reads as a whole, without waiting.

A version counts writes: odd while one is under way. A reader copies, and takes the copy only
where the version stood still meanwhile and was even. A checksum beside the version tells a torn
record also on processors that reorder writes.
"""

from __future__ import annotations

import struct
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.runtime.faults import StaleTickError
from drivetrain_trainer.runtime.shared_memory import CACHE_LINE, WORD

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.shared_memory import SharedMemory

HEADER_WORDS: Final = CACHE_LINE // WORD
"""Words of a record's header."""
READ_TIMEOUT_S: Final = 1.0
"""No write takes so long: its writer is stuck, or gone, in the middle of one."""

_VERSION: Final = 0
"""Odd while the record is being written."""
_TICK: Final = 1
_BYTES: Final = 2
_CHECKSUM: Final = 3


@dataclass(frozen=True)
class Whole:
    """What a reader got."""

    version: int
    """Of the record: 2 more with every write."""
    tick: int
    """As the writer gave it."""
    data: bytearray
    """A copy of its own."""


class Record:
    """One header and one body in shared memory; either side makes its own of them."""

    def __init__(self, memory: SharedMemory, header: int, body: int, capacity: int) -> None:
        """Lie at these offsets of `memory`: `HEADER_WORDS` words, and `capacity` bytes."""
        self._header = memory.words(header, HEADER_WORDS)
        self._body = memory.octets(body, capacity)

    def write(self, tick: int, data: bytes | memoryview) -> None:
        """Replace the record.

        Args:
            tick: A number that goes with it.
            data: At most `capacity` bytes.
        """
        header = self._header
        header[_VERSION] += 1
        header[_TICK] = tick
        header[_BYTES] = len(data)
        header[_CHECKSUM] = _checksum(header[_VERSION] + 1, tick, data)
        self._body[: len(data)] = data
        header[_VERSION] += 1

    def attempt(self, seen: int = 0) -> Whole | None:
        """One look: None where a write is under way, or the version is still `seen`."""
        header = self._header
        version = header[_VERSION]
        if version == seen or version % 2:
            return None
        tick, checksum = header[_TICK], header[_CHECKSUM]
        data = bytearray(self._body[: min(max(header[_BYTES], 0), len(self._body))])
        if header[_VERSION] != version or _checksum(version, tick, data) != checksum:
            return None
        return Whole(version, tick, data)

    def read(self, seen: int = 0) -> Whole | None:
        """The record; None where its version is still `seen`, 0 before the first write.

        Raises:
            StaleTickError: the writer did not finish within a second.
        """
        deadline = time.monotonic() + READ_TIMEOUT_S
        while self._header[_VERSION] != seen:
            whole = self.attempt(seen)
            if whole is not None:
                return whole
            if time.monotonic() > deadline:
                raise StaleTickError(
                    self._header[_TICK], READ_TIMEOUT_S, waiting_for="a whole record"
                )
        return None


def _checksum(version: int, tick: int, data: bytes | bytearray | memoryview) -> int:
    return zlib.crc32(data, zlib.crc32(struct.pack("<qq", version, tick)))
