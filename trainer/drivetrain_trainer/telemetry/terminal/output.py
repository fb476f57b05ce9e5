"""Writing to a stream that may be slow, stuck or gone, without ever waiting for it."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from typing import Final, TextIO

LARGEST_BACKLOG: Final = 1 << 20
"""Bytes that wait for a stream that takes none; what comes beyond them is dropped."""
_PIPE_CHUNK: Final = 4096
"""Bytes that a pipe which polls as writable takes at once (PIPE_BUF on Linux)."""
_TERMINAL_CHUNK: Final = 256
"""Bytes that a terminal which polls as writable takes at once, most likely."""
_STANDARD_STREAMS: Final = (1, 2)


class Output:
    """Bytes on their way to a stream; safe to use from two threads.

    A terminal is opened anew without blocking, so that the setting concerns nobody else who
    writes to it. Of a pipe's room only as much is used as it is sure to have. A stream without a
    descriptor is written to directly.

    Every method but `close` may raise the `OSError` or `ValueError` of a stream that is gone.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encoding = stream.encoding or "ascii"
        self._pending = bytearray()
        self._closed = False
        self._lock = threading.Lock()
        self._pumping = threading.Lock()
        self._own: int | None = None
        self._chunk = _PIPE_CHUNK
        self._may_block = False
        self._descriptor = _descriptor(stream)
        if self._descriptor is not None and os.isatty(self._descriptor):
            self._own = _opened_anew(self._descriptor)
            self._may_block = self._own is None
            self._chunk = _TERMINAL_CHUNK if self._may_block else LARGEST_BACKLOG

    @property
    def backlog(self) -> int:
        """Bytes that the stream has not taken yet."""
        return len(self._pending)

    def write(self, text: str) -> bool:
        """Write now what the stream takes now; False where the text had to be dropped."""
        if self._closed:
            return False
        if self._descriptor is None:
            self._stream.write(text)
            self._stream.flush()
            return True
        with self._lock:
            fits = len(self._pending) < LARGEST_BACKLOG
            if fits:
                self._pending += text.encode(self._encoding, "replace")
        if not self._may_block:
            self._pump()
        return fits

    def drain(self, timeout_s: float = 0.0) -> bool:
        """Write what waits, for at most `timeout_s` seconds; whether nothing is left.

        To be called on a thread that nobody waits for: a terminal that could not be opened anew
        may still hold it up, though not those who `write`.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self._pump()
            if not self._pending:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._wait(left)

    def abandon(self) -> None:
        """Give the stream up; where it is a standard one, what else is printed goes nowhere.

        Otherwise the next print of training, or the flush at the interpreter's end, would fail
        on what the terminal or the pipe no longer takes.
        """
        self.close()
        if self._descriptor in _STANDARD_STREAMS:
            with contextlib.suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._descriptor)
                os.close(nowhere)

    def close(self) -> None:
        """Let go of what was opened here; the stream itself stays open."""
        self._closed = True
        with self._pumping, self._lock:
            self._pending.clear()
            own, self._own = self._own, None
            if own is not None:
                os.close(own)

    def _pump(self) -> None:
        with self._pumping:
            while self._pending and not self._closed:
                if self._own is None and not self._wait(0.0):
                    return
                try:
                    taken = os.write(self._target(), self._pending[: self._chunk])
                except BlockingIOError:
                    return
                with self._lock:
                    del self._pending[:taken]

    def _wait(self, timeout_s: float) -> bool:
        """Whether the stream takes something, or has failed, within the time."""
        poll = select.poll()
        poll.register(self._target(), select.POLLOUT)
        return bool(poll.poll(1000 * timeout_s))

    def _target(self) -> int:
        if self._stream.closed or self._descriptor is None:
            raise ValueError("the stream is closed")
        return self._descriptor if self._own is None else self._own


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):  # a buffer in memory, or a closed stream
        return None


def _opened_anew(descriptor: int) -> int | None:
    flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    # by its descriptor first: some containers do not see the name of their terminal
    for name in (f"/proc/self/fd/{descriptor}", None):
        with contextlib.suppress(OSError):  # no /proc; a terminal of another user, after sudo
            return os.open(name or os.ttyname(descriptor), flags)
    return None
