"""The thread between training and a backend: bounded, never blocking, never raising."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_trainer.telemetry.backends.base import Backend
    from drivetrain_trainer.telemetry.record import Record

QUEUE_CAPACITY = 4096
"""Records waiting for a slow backend before new ones are given up."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class BackendHealth:
    """How persisting went, for the run's summary."""

    name: str
    """The backend's name."""
    written: int
    """Records the backend took."""
    lost: int
    """Records it never took: queue full, write failed, or unwritten at the end."""
    error: str | None
    """The first error, if there was one."""


class BackendWriter:
    """Feeds a backend from a thread of its own.

    A full queue loses the newest record and a failing write loses its record; both are
    counted, the first of each kind is warned of, and training goes on. A backend that
    cannot be opened loses everything, likewise counted.
    """

    def __init__(self, backend: Backend, *, capacity: int = QUEUE_CAPACITY) -> None:
        self._backend = backend
        self._queue: queue.Queue[Record | None] = queue.Queue(capacity)
        self._lock = threading.Lock()
        self._written = 0
        self._submitted = 0
        self._lost = 0
        self._error: str | None = None
        self._full_warned = False
        self._closed = False
        self._thread = threading.Thread(
            target=self._run, name=f"backend-{backend.name}", daemon=True
        )
        self._thread.start()

    def put(self, record: Record) -> None:
        """Queue a record; returns at once, whatever the backend does."""
        self._submitted += 1
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._lose(1)
            if not self._full_warned:
                self._full_warned = True
                log.warning(
                    "metric backend is too slow; records are being lost",
                    backend=self._backend.name,
                    queue_capacity=self._queue.maxsize,
                )

    def close(self, timeout_s: float = 5.0) -> BackendHealth:
        """Write what is queued, at most for `timeout_s`, and give the backend up after it."""
        if not self._closed:
            self._closed = True
            deadline = time.monotonic() + timeout_s
            with contextlib.suppress(queue.Full):  # it hangs: the join below gives it up
                self._queue.put(None, timeout=timeout_s)
            self._thread.join(max(deadline - time.monotonic(), 0.0))
            if self._thread.is_alive():
                self._abandon(timeout_s)
        return self.health

    @property
    def health(self) -> BackendHealth:
        """Counts so far."""
        with self._lock:
            return BackendHealth(self._backend.name, self._written, self._lost, self._error)

    def _abandon(self, waited_s: float) -> None:
        with self._lock:
            unwritten = self._submitted - self._written - self._lost
            self._lost += unwritten
            self._error = self._error or f"did not finish within {waited_s:g} s"
        log.warning(
            "metric backend did not finish; its last records are lost",
            backend=self._backend.name,
            lost=unwritten,
        )

    def _lose(self, count: int) -> None:
        with self._lock:
            self._lost += count

    def _fail(self, error: Exception, doing: str) -> None:
        with self._lock:
            first = self._error is None
            self._error = self._error or f"{doing}: {type(error).__name__}: {error}"
        if first:
            log.warning(
                "metric backend failed; training goes on, later failures are only counted",
                backend=self._backend.name,
                doing=doing,
                error=f"{type(error).__name__}: {error}",
            )

    def _run(self) -> None:
        opened = self._attempt(self._backend.open, "open")
        while (record := self._queue.get()) is not None:
            if opened:
                self._write(record)
            else:
                self._lose(1)
        if opened:
            self._attempt(self._backend.close, "close")

    def _write(self, record: Record) -> None:
        try:
            self._backend.write(record)
        except Exception as error:  # noqa: BLE001 - no backend may stop training, whatever it raises
            self._lose(1)
            self._fail(error, "write")
            return
        with self._lock:
            self._written += 1
        if self._queue.empty():
            self._attempt(self._backend.flush, "flush")

    def _attempt(self, action: Callable[[], None], doing: str) -> bool:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error, doing)
            return False
        return True
