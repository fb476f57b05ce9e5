"""Bytes of shared memory that one process writes and another reads as a whole, without a lock.

A version counts writes: odd while one is under way. A reader copies, and takes the copy only
where the version stood still meanwhile and was even. A checksum beside the version tells a torn
record also on processors that reorder writes.

A write takes microseconds of its process, but a machine that is short of processors may take
that process away in the middle of one for seconds. So a reader bears with a writer that lives,
and tells at once of one that died.
"""

from __future__ import annotations

import struct
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.runtime.doorbell import readable
from drivetrain_trainer.runtime.faults import PeerDiedError, StaleTickError
from drivetrain_trainer.runtime.shared_memory import CACHE_LINE, WORD

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.doorbell import Peer
    from drivetrain_trainer.runtime.shared_memory import SharedMemory

HEADER_WORDS: Final = CACHE_LINE // WORD
"""Words of a record's header."""
PATIENCE_S: Final = 60.0
"""Of a reader with a writer that lives: one that has no share of a processor for so long is
stopped."""
_EAGER_LOOKS: Final = 100
"""Before the reader leaves its processor: most writes are over within."""
_LOOK_EVERY_S: Final = 1e-3

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

    def read(
        self, seen: int = 0, *, writer: Peer | None = None, patience_s: float | None = None
    ) -> Whole | None:
        """The record; None where its version is still `seen`, 0 before the first write.

        Args:
            seen: Version that was taken last.
            writer: Its process; without it, only time ends the wait for a write under way.
            patience_s: Seconds of that wait, `PATIENCE_S` unless told.

        Raises:
            PeerDiedError: the writer died in the middle of a write.
            StaleTickError: the writer lives, but did not finish one in that time.
        """
        patience = Patience(writer, "a whole record", patience_s)
        while self._header[_VERSION] != seen:
            whole = self.attempt(seen)
            if whole is not None:
                return whole
            patience.pause(self._header[_TICK])
        return None


class Patience:
    """What a reader does between two looks at a write under way, until it is of no use."""

    def __init__(self, writer: Peer | None, what: str, patience_s: float | None = None) -> None:
        """Wait for `what` as long as `writer` lives, `patience_s` or `PATIENCE_S` at most."""
        self._writer = writer
        self._what = what
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._looks = 0
        self._deadline: float | None = None
        self._over: PeerDiedError | StaleTickError | None = None

    def pause(self, tick: int) -> None:
        """After a look in vain: let the writer go on a little; `tick` is named in the error.

        The end of the wait is told only after one more look: the writer may have finished
        before it died, and this process may itself have had no processor for all that time.

        Raises:
            PeerDiedError: the writer was dead before the latest look.
            StaleTickError: the time was up before the latest look.
        """
        if self._over is not None:
            raise self._over
        self._looks += 1
        if self._looks <= _EAGER_LOOKS:
            return
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._patience_s
        if self._writer is None:
            time.sleep(_LOOK_EVERY_S)
        elif readable(self._writer, _LOOK_EVERY_S):
            self._over = self._writer.death()
        if self._over is None and now > self._deadline:
            self._over = StaleTickError(tick, self._patience_s, waiting_for=self._what)


def _checksum(version: int, tick: int, data: bytes | bytearray | memoryview) -> int:
    return zlib.crc32(data, zlib.crc32(struct.pack("<qq", version, tick)))
