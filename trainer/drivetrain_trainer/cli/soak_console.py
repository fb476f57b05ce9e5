"""What a watched command prints: drained as it comes, its newest part kept."""

from __future__ import annotations

import sys
import threading
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

LIMIT: Final = 8 << 20
"""Bytes of the log; the newest half, at least, is kept."""
_CHUNK: Final = 64 << 10
_JOIN_SECONDS: Final = 2.0
"""What the last words may take; a process that outlives the run may hold the pipe for ever."""


class Console:
    """Keeps a command's output in a file of bounded size."""

    def __init__(self, path: Path, *, echo: bool, limit: int = LIMIT) -> None:
        """Keep output in `path`.

        Args:
            path: The log.
            echo: Print it to standard error as well.
            limit: Most bytes that are kept.
        """
        self.path = path
        self.cut = False
        """Whether older output was dropped."""
        self._echo = echo
        self._half = limit // 2
        self._older = path.with_name(f"{path.name}.older")
        self._size = 0
        self._file = path.open("wb", buffering=0)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def follow(self, source: IO[bytes]) -> None:
        """Drain a pipe until its end, in a thread of its own."""
        self._thread = threading.Thread(
            target=self._drain, args=(source,), name="soak_console", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Take what has been printed by now, and put the log together."""
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)
        with self._lock:
            self._file.close()
            if self._older.exists():
                newest = self.path.read_bytes()
                self.path.write_bytes(self._older.read_bytes() + newest)

    def tail(self, size: int) -> str:
        """The last bytes of the log as text."""
        return self.path.read_bytes()[-size:].decode(errors="replace").strip()

    def _drain(self, source: IO[bytes]) -> None:
        while chunk := source.read1(_CHUNK):  # type: ignore[attr-defined]  # of a pipe's reader
            with self._lock:
                if self._file.closed:
                    return
                self._write(chunk)
            if self._echo:
                sys.stderr.buffer.write(chunk)
                sys.stderr.flush()

    def _write(self, chunk: bytes) -> None:
        if self._size + len(chunk) > self._half:
            self._file.close()
            self.cut |= self._older.exists()
            self.path.replace(self._older)
            self._file = self.path.open("wb", buffering=0)
            self._size = 0
        self._file.write(chunk)
        self._size += len(chunk)
