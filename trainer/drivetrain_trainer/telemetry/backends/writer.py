"""The thread between training and a backend: bounded, never blocking, never raising."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import structlog

from drivetrain_trainer.telemetry.backends.base import MAX_CLOSE_SECONDS, MediaBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from drivetrain_trainer.telemetry.backends.base import Backend
    from drivetrain_trainer.telemetry.record import Record

QUEUE_CAPACITY: Final = 4096
"""Records waiting for a slow backend before new ones are given up."""
ERROR_LIMIT: Final = 1024
"""Characters of an error that are kept."""
_SECRET_NAMES: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SECRET_LENGTH: Final = 8
"""Shorter values of such variables are no secrets, and occur in any text."""

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
    details: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the backend tells of itself, such as ``run_url``."""


@dataclass(frozen=True)
class _Upload:
    path: Path
    name: str


class BackendWriter:
    """Feeds a backend from a thread of its own.

    A full queue loses the newest record and a failing write loses its record; both are
    counted, the first of each kind is warned of, and training goes on. A backend that
    cannot be opened loses everything, likewise counted.
    """

    def __init__(self, backend: Backend, *, capacity: int = QUEUE_CAPACITY) -> None:
        self._backend = backend
        self._capabilities = backend.capabilities
        self._queue: queue.Queue[Record | _Upload | None] = queue.Queue(capacity)
        self._lock = threading.Lock()
        self._written = 0
        self._submitted = 0
        self._lost = 0
        self._error: str | None = None
        self._full_warned = False
        self._closing: float | None = None
        self._ended = False
        self._thread = threading.Thread(
            target=self._run, name=f"backend-{backend.name}", daemon=True
        )
        self._thread.start()

    def put(self, record: Record) -> None:
        """Queue a record; returns at once, whatever the backend does."""
        with self._lock:
            self._submitted += 1
        if not self._enqueue(record):
            self._lose(1)

    def upload(self, path: Path, name: str) -> None:
        """Queue a file for a backend that takes files; returns at once."""
        if isinstance(self._backend, MediaBackend):
            self._enqueue(_Upload(path, name))

    def close(self, timeout_s: float | None = None) -> BackendHealth:
        """Write what is queued, at most for `timeout_s`, and give the backend up after it.

        Without a timeout the backend's own `close_seconds` count.
        """
        self.finish()
        self.wait(timeout_s)
        return self.health

    def finish(self) -> None:
        """Let the thread end once the queue is empty; returns at once."""
        if self._closing is None:
            self._closing = time.monotonic()
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(None)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the end that `finish` asked for; counts what was not written as lost."""
        if self._ended or self._closing is None:
            return
        seconds = self._capabilities.close_seconds if timeout_s is None else timeout_s
        self._thread.join(
            max(self._closing + min(seconds, MAX_CLOSE_SECONDS) - time.monotonic(), 0.0)
        )
        self._ended = True
        self._give_up(f"did not finish within {seconds:g} s" if self._thread.is_alive() else None)

    @property
    def submitted(self) -> int:
        """Records so far, taken, lost or waiting."""
        with self._lock:
            return self._submitted

    @property
    def health(self) -> BackendHealth:
        """Counts so far; never blocks."""
        with self._lock:
            written, lost, error = self._written, self._lost, self._error
        return BackendHealth(self._backend.name, written, lost, error, self._details())

    def _details(self) -> Mapping[str, str]:
        try:
            details = {str(key): str(value) for key, value in self._backend.details.items()}
        except Exception as error:  # noqa: BLE001 - asked on the training thread, of anybody's code
            self._fail(error, "details")
            return MappingProxyType({})
        return MappingProxyType(details)

    def _enqueue(self, item: Record | _Upload) -> bool:
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            if not self._full_warned:
                self._full_warned = True
                log.warning(
                    "metric backend is too slow; records are being lost",
                    backend=self._backend.name,
                    queue_capacity=self._queue.maxsize,
                )
            return False
        return True

    def _give_up(self, problem: str | None) -> None:
        with self._lock:
            unwritten = self._submitted - self._written - self._lost
            self._lost += unwritten
            self._error = self._error or problem
        if unwritten or problem:
            log.warning(
                "metric backend did not finish; its last records are lost",
                backend=self._backend.name,
                lost=unwritten,
            )

    def _lose(self, count: int) -> None:
        with self._lock:
            self._lost += count

    def _fail(self, error: BaseException, doing: str) -> None:
        described = without_secrets(f"{type(error).__name__}: {error}")[:ERROR_LIMIT]
        with self._lock:
            first = self._error is None
            self._error = self._error or f"{doing}: {described}"
        if first:
            log.warning(
                "metric backend failed; training goes on, later failures are only counted",
                backend=self._backend.name,
                doing=doing,
                error=described,
            )

    def _run(self) -> None:
        opened = self._attempt(self._backend.open, "open")
        while (item := self._next()) is not None:
            if isinstance(item, _Upload):
                self._upload(item, opened=opened)
            elif opened:
                self._write(item)
            else:
                self._lose(1)
        if opened:
            self._attempt(self._backend.close, "close")

    def _next(self) -> Record | _Upload | None:
        """The next item; None once the queue is empty and the end was asked for."""
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            # The end's mark may have found the queue full: then nothing will wake a wait.
            return None if self._closing is not None else self._queue.get()

    def _upload(self, item: _Upload, *, opened: bool) -> None:
        backend = self._backend
        if opened and isinstance(backend, MediaBackend):
            self._attempt(lambda: backend.upload(item.path, item.name), f"upload {item.name}")

    def _write(self, record: Record) -> None:
        fitting = self._fitting(record)
        if not self._attempt(lambda: self._backend.write(fitting), "write"):
            self._lose(1)
            return
        with self._lock:
            self._written += 1
        if self._queue.empty():
            self._attempt(self._backend.flush, "flush")

    def _fitting(self, record: Record) -> Record:
        """The record as this backend can hold it."""
        if not record.tables or self._capabilities.tables:
            return record
        values = dict(record.values)
        if self._capabilities.scalar_per_expert:
            for name, table in record.tables.items():
                values.update(table.scalars(name))
        return replace(record, values=values, tables=MappingProxyType({}))

    def _attempt(self, action: Callable[[], None], doing: str) -> bool:
        try:
            action()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - no backend may stop training
            self._fail(error, doing)
            return False
        return True


def close_all(writers: Iterable[BackendWriter]) -> None:
    """Close several at once: the slowest one bounds the wait, not their sum."""
    closing = tuple(writers)
    for writer in closing:
        writer.finish()
    for writer in closing:
        writer.wait()


def without_secrets(text: str) -> str:
    """The text with the values of environment variables named like secrets left out."""
    for name, value in os.environ.items():
        secret = any(part in name.upper() for part in _SECRET_NAMES)
        if secret and len(value) >= _SECRET_LENGTH and value in text:
            text = text.replace(value, f"[{name}]")
    return text
