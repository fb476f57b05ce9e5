"""The records of event files, read in bounded pieces and checked."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

import google_crc32c
import numpy as np

from drivetrain_trainer.telemetry.backends.record_frame import (
    FOOTER_BYTES,
    HEADER_BYTES,
    MASK_DELTA,
    masked_crc32c,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

PIECE_BYTES: Final = 1 << 21
"""Bytes read at once."""
RECORD_LIMIT: Final = 64 << 20
"""Payload bytes of the largest record that is read; a larger one is passed over and told."""

_KNOWN_LIMIT: Final = 4096
_TOLD: Final = 20


@dataclass(frozen=True)
class Records:
    """Whole records of one piece of a file."""

    data: bytes
    """The piece."""
    starts: NDArray[np.int64]
    """Offset of each payload in `data`."""
    lengths: NDArray[np.int64]
    """Bytes of each payload."""
    first: int
    """Ordinal of the first of them in the file."""
    sound: NDArray[np.bool_]
    """Whether the checksum of each payload is right."""
    end: int
    """Offset in the file up to which it has been read."""

    def payload(self, index: int) -> bytes:
        """The bytes of one payload."""
        start = int(self.starts[index])
        return self.data[start : start + int(self.lengths[index])]


class RecordReader:
    """Reads the records of a file in order and says what could not be read.

    Nothing is raised for what is in the file: a torn end is what a killed writer leaves. What
    was found is in `damage` once reading is done.
    """

    def __init__(self, path: Path, *, limit: int | None = None) -> None:
        """Read `path` up to `limit` bytes, or to where it ends now."""
        self._path = path
        self._limit = path.stat().st_size if limit is None else limit
        self._known: dict[bytes, int] = {}
        self._lost = False
        self.damage: list[str] = []

    def __iter__(self) -> Iterator[Records]:
        """Pieces of whole records, in order.

        Raises:
            OSError: the file cannot be opened or read.
        """
        with self._path.open("rb") as file:
            yield from self._pieces(file)

    def _pieces(self, file: BinaryIO) -> Iterator[Records]:
        """Each pass reads one piece; what is left of it goes before the next."""
        rest, ordinal, want = b"", 0, PIECE_BYTES
        while data := file.read(max(0, min(want, self._limit - file.tell()))):
            base = file.tell() - len(data) - len(rest)
            rest, found = self._frame(rest + data, ordinal, base)
            if len(found.starts):
                ordinal += len(found.starts)
                self._tell_unsound(found, base)
                yield found
            if self._lost:
                return
            missing = self._missing(rest)
            if missing > self._limit - file.tell():
                break
            want = max(PIECE_BYTES, missing)
            if want > RECORD_LIMIT:
                self._tell(
                    file.tell() - len(rest),
                    f"a record of {missing + len(rest):,} bytes is passed over "
                    f"(the limit is {RECORD_LIMIT:,})",
                )
                file.seek(missing, os.SEEK_CUR)
                rest, ordinal, want = b"", ordinal + 1, PIECE_BYTES
        if rest:
            offset = file.tell() - len(rest)
            self._tell(offset, "the last record is unfinished: its writer was stopped, or writes")

    def _frame(self, data: bytes, ordinal: int, base: int) -> tuple[bytes, Records]:
        """The whole records of `data`, and what is left of it."""
        known, checksum = self._known.get, google_crc32c.value
        starts: list[int] = []
        sums: list[int] = []
        at, size = 0, len(data)
        while at + HEADER_BYTES <= size:
            start = at + HEADER_BYTES
            header = data[at:start]
            length = known(header)
            if length is None:
                length = self._verified(header)
                if length is None:
                    self._lost = True
                    self._tell(
                        base + at,
                        "the checksum of a record's length is wrong: nothing after it can be read",
                    )
                    break
            stop = start + length
            if stop + FOOTER_BYTES > size:
                break
            starts.append(start)
            sums.append(checksum(data[start:stop]))
            at = stop + FOOTER_BYTES
        return data[at:], _records(data[:at], starts, sums, first=ordinal, end=base + at)

    def _verified(self, header: bytes) -> int | None:
        """The length in a header whose checksum is right."""
        length, stored = struct.unpack("<QI", header)
        if masked_crc32c(header[:8]) != stored:
            return None
        if len(self._known) >= _KNOWN_LIMIT:
            self._known.clear()
        self._known[header] = int(length)
        return int(length)

    def _missing(self, rest: bytes) -> int:
        """Bytes that the record which `rest` begins still needs; 1 where that is not known."""
        if len(rest) < HEADER_BYTES:
            return 1 if rest else 0
        return HEADER_BYTES + self._known[rest[:HEADER_BYTES]] + FOOTER_BYTES - len(rest)

    def _tell_unsound(self, found: Records, base: int) -> None:
        for index in np.flatnonzero(~found.sound)[: _TOLD + 1]:
            self._tell(
                base + int(found.starts[index]) - HEADER_BYTES,
                "the checksum of a record is wrong: the record is left out",
            )

    def _tell(self, offset: int, what: str) -> None:
        self.tell(f"at byte {offset:,}", what)

    def tell(self, where: str, what: str) -> None:
        """Note damage, up to a number of notes."""
        if len(self.damage) < _TOLD:
            self.damage.append(f"{self._path}: {where}: {what}")
        elif len(self.damage) == _TOLD:
            self.damage.append(f"{self._path}: and more of the kind")


def _records(data: bytes, starts: list[int], sums: list[int], *, first: int, end: int) -> Records:
    """The records that fill `data`, from where their payloads start and their checksums."""
    offsets = np.array(starts, dtype=np.int64)
    stops = np.append(offsets[1:] - HEADER_BYTES, len(data))[: len(starts)] - FOOTER_BYTES
    checksums = np.array(sums, dtype=np.uint32)
    masked = ((checksums >> 15) | (checksums << 17)) + np.uint32(MASK_DELTA)
    octets = np.frombuffer(data, dtype=np.uint8)
    footers = octets[stops[:, None] + np.arange(FOOTER_BYTES)]
    sound = footers.view("<u4")[:, 0] == masked
    return Records(data, offsets, stops - offsets, first, sound, end)
