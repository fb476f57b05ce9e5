"""``configmap:<name>``: reports to the API server from a thread of their own.

Training never waits for it: a report replaces the one that has not been sent yet, and what
fails is sent again with back-off. Only the last report of an attempt is waited for, within a
bound.
"""

from __future__ import annotations

import contextvars
import random
import threading
import time
from functools import partial
from typing import Final, Protocol

import structlog

from drivetrain_trainer.launcher.service_account import PublishError

log = structlog.get_logger(__name__)

SPACING_SECONDS: Final = 5.0
"""Least time between two reports while an attempt runs: thousands of runs share a server."""
REQUEST_SECONDS: Final = 3.0
"""Time-out of one request."""
LAST_RETRY_SECONDS: Final = 0.25
"""Pause between two tries of the last report."""

_LEAST_BACKOFF = 1.0
_MOST_BACKOFF = 60.0


class Target(Protocol):
    """Where reports go."""

    def patch(self, text: str, timeout_s: float) -> None:
        """Replace the report; raises PublishError."""


class ConfigMapSink:
    """Sends the newest report; see the module's words."""

    def __init__(self, target: Target, *, spacing_s: float = SPACING_SECONDS) -> None:
        """Create the sink; its thread starts with the first report.

        Args:
            target: Where reports go.
            spacing_s: Least seconds between two reports.
        """
        self._target = target
        self._spacing = spacing_s
        self._changed = threading.Condition()
        self._pending: str | None = None
        self._sending = False
        self._not_before = 0.0
        self._ends: float | None = None
        self._failures = 0
        self._told: str | None = None
        self._given_up = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def publish(self, text: str) -> None:
        """Hand a report over; returns at once."""
        with self._changed:
            self._pending = text
            if self._thread is None:
                # The thread's words carry the run and the attempt as ours do.
                run = partial(contextvars.copy_context().run, self._run)
                self._thread = threading.Thread(target=run, name="progress-sink", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self, seconds: float) -> None:
        """Wait until what was handed over last has arrived, at most `seconds`.

        It is sent at once, and again until then; the thread ends with it either way.
        """
        with self._changed:
            ends = self._ends = time.monotonic() + seconds
            self._not_before = 0.0
            self._changed.notify_all()
            while (self._pending is not None or self._sending) and not self._given_up:
                left = ends - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            lost = self._pending is not None or self._sending
            self._closed = True
            self._changed.notify_all()
        if lost:
            log.warning("the last report may not have arrived", seconds=round(seconds, 1))

    def _run(self) -> None:
        while (text := self._next()) is not None:
            error = self._send(text)
            self._tell(error)
            self._settle(text, error)

    def _next(self) -> str | None:
        """The next report, once it is due; None when all is over."""
        with self._changed:
            while not self._closed:
                wait = None
                if self._pending is not None:
                    wait = self._not_before - time.monotonic()
                    if wait <= 0:
                        text, self._pending, self._sending = self._pending, None, True
                        return text
                elif self._ends is not None:
                    break
                self._changed.wait(wait)
            return None

    def _send(self, text: str) -> PublishError | None:
        ends = self._ends
        left = REQUEST_SECONDS if ends is None else ends - time.monotonic()
        try:
            self._target.patch(text, min(REQUEST_SECONDS, max(LAST_RETRY_SECONDS, left)))
        except PublishError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the thread must outlive a flaw of its own
            return PublishError(f"{type(error).__name__}: {error}")
        return None

    def _settle(self, text: str, error: PublishError | None) -> None:
        with self._changed:
            self._sending = False
            if error is None:
                self._failures = 0
                pause = self._spacing if self._ends is None else 0.0
            else:
                self._failures += 1
                self._pending = self._pending or text
                pause = self._pause(error)
                self._given_up = self._ends is not None and error.hopeless
            self._not_before = time.monotonic() + pause
            self._changed.notify_all()

    def _pause(self, error: PublishError) -> float:
        if self._ends is not None:
            return LAST_RETRY_SECONDS
        backoff = min(_MOST_BACKOFF, _LEAST_BACKOFF * 2.0 ** min(self._failures - 1, 10))
        jitter = random.uniform(0.75, 1.25)  # noqa: S311 - spreads retries, guards nothing
        return max(error.wait_s, backoff * jitter)

    def _tell(self, error: PublishError | None) -> None:
        """Each reason once, until reports arrive again."""
        reason = None if error is None else str(error)
        if reason == self._told:
            return
        if reason is None:
            log.info("progress is published again")
        else:
            log.warning("progress cannot be published", reason=reason)
        self._told = reason
