"""A file that only ever holds whole records, even on a disk that is full."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path


class AppendFile:
    """Appends records without a buffer: what was appended survives the process's death.

    An append that fails half-way is taken back, so that later records stay readable once
    there is space again.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new file.

        Raises:
            FileExistsError: it is there already.
            OSError: it cannot be made.
        """
        return cls(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666))

    @classmethod
    def extend(cls, path: Path) -> Self:
        """A file that may exist.

        Raises:
            OSError: it cannot be opened.
        """
        return cls(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666))

    @property
    def size(self) -> int:
        """Bytes so far."""
        return os.fstat(self._open).st_size

    def last_byte(self) -> bytes:
        """The last byte of a file opened with `extend`; empty where the file is."""
        size = self.size
        return os.pread(self._open, 1, size - 1) if size else b""

    def append(self, data: bytes) -> None:
        """Append a record as a whole, or not at all.

        Raises:
            OSError: the disk is full, a quota is used up, the volume is gone.
        """
        before = self.size
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._open, left) :]
        except OSError:
            with contextlib.suppress(OSError):  # nothing more can be done; the first error counts
                os.ftruncate(self._open, before)
            raise

    def close(self) -> None:
        """Close; a second close does nothing."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    @property
    def _open(self) -> int:
        if self._descriptor is None:
            raise ValueError("the file is closed")
        return self._descriptor
