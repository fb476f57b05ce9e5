"""A queue of keys: each at most once in it, and never worked on twice at a time.

A key that is added while a worker holds it is dirty: it comes again once that worker is
done, so that no change is lost. A key that waits for a later moment keeps the earliest
one. A key that fails waits longer each time until it is forgotten.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

K = TypeVar("K", bound="Hashable")


class QueueClosedError(Exception):
    """The queue was closed: there is no next key."""


class Timer(Protocol):
    """A callback that is due later."""

    def cancel(self) -> None:
        """Make it not happen."""


class Clock(Protocol):
    """Where the queue takes its time from; an asyncio event loop is one."""

    def time(self) -> float:
        """Seconds of a clock that never goes back."""

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer:
        """Call `callback` once `time` reaches `when`."""


@dataclass
class _Delayed:
    due: float
    timer: Timer


class KeyedQueue(Generic[K]):
    """Keys to work on, in order of arrival; for one event loop, not thread-safe.

    A worker loops over `get`, works, then calls `forget` after success or `retry` after
    failure, and always `done`.

    Args:
        first_delay: seconds that a key waits after its first failure in a row; doubled
            with each further one.
        max_delay: the longest such wait.
        clock: the running event loop when None; it must be running by the first delay.
    """

    def __init__(
        self, *, first_delay: float = 0.5, max_delay: float = 300.0, clock: Clock | None = None
    ) -> None:
        if not 0 < first_delay <= max_delay:
            raise ValueError(
                f"first_delay must be above 0 and at most max_delay {max_delay}; got {first_delay}"
            )
        self._first_delay = first_delay
        self._max_delay = max_delay
        self._injected = clock
        self._ready: deque[K] = deque()
        self._waiting_since: dict[K, float] = {}
        """When each key of `_ready` became due; membership is asked here."""
        self._working: dict[K, float] = {}
        """When each key was handed to its worker."""
        self._dirty: dict[K, float] = {}
        """When each key was added while a worker held it."""
        self._delayed: dict[K, _Delayed] = {}
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def _clock(self) -> Clock:
        return self._injected if self._injected is not None else asyncio.get_running_loop()

    def add(self, key: K, delay: float = 0.0) -> None:
        """Have `key` worked on, at once or after `delay` seconds; the earliest wins.

        On a closed queue nothing happens.
        """
        if self._closed or key in self._waiting_since or key in self._dirty:
            return
        if delay <= 0:
            self._due(key)
            return
        due = self._clock.time() + delay
        known = self._delayed.get(key)
        if known is not None:
            if known.due <= due:
                return
            known.timer.cancel()
        self._delayed[key] = _Delayed(due, self._clock.call_at(due, lambda: self._due(key)))

    def retry(self, key: K) -> float:
        """Add `key` again after a failure; returns the seconds it waits.

        An `add` without delay still comes at once: what changed may be the cure.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        doublings = min(failures, 64)
        delay = min(self._first_delay * 2.0**doublings, self._max_delay)
        self.add(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Take the failures of `key` for over: the next one waits `first_delay` again."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Failures of `key` in a row."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key; no other worker gets it before `done`.

        Raises:
            QueueClosedError: the queue is closed; keys that were left in it are not given out.
        """
        while not self._closed:
            if self._ready:
                key = self._ready.popleft()
                del self._waiting_since[key]
                self._working[key] = self._clock.time()
                return key
            await self._wait()
        raise QueueClosedError

    async def _wait(self) -> None:
        getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            if getter in self._getters:
                self._getters.remove(getter)
            elif self._ready:
                self._wake_one()
            raise

    def done(self, key: K) -> None:
        """The worker is through with `key`; if it became dirty, it is due again.

        Raises:
            KeyError: no worker holds that key.
        """
        del self._working[key]
        since = self._dirty.pop(key, None)
        if since is not None and not self._closed:
            self._ready.append(key)
            self._waiting_since[key] = since
            self._wake_one()

    def close(self) -> None:
        """Wake every waiting worker with `QueueClosedError`, and drop all keys and timers."""
        self._closed = True
        for delayed in self._delayed.values():
            delayed.timer.cancel()
        self._delayed.clear()
        self._ready.clear()
        self._waiting_since.clear()
        self._dirty.clear()
        while self._getters:
            self._wake_one()

    def __len__(self) -> int:
        """Keys that are due and wait for a worker, dirty ones included."""
        return len(self._waiting_since) + len(self._dirty)

    @property
    def delayed(self) -> int:
        """Keys that wait for a later moment."""
        return len(self._delayed)

    @property
    def working(self) -> int:
        """Keys that workers hold."""
        return len(self._working)

    def oldest_wait(self) -> float:
        """Seconds that the key due for longest has waited for a worker; 0 without one."""
        return self._age((*self._waiting_since.values(), *self._dirty.values()))

    def oldest_work(self) -> float:
        """Seconds that a worker has held a key, the longest: a stuck one grows without end."""
        return self._age(tuple(self._working.values()))

    def _age(self, times: tuple[float, ...]) -> float:
        now: float = self._clock.time()
        return now - min(times) if times else 0.0

    def _due(self, key: K) -> None:
        """The key's moment has come; a later one that was asked for is covered by it."""
        delayed = self._delayed.pop(key, None)
        if delayed is not None:
            delayed.timer.cancel()
        now = self._clock.time()
        if key in self._working:
            self._dirty.setdefault(key, now)
        elif key not in self._waiting_since:
            self._ready.append(key)
            self._waiting_since[key] = now
            self._wake_one()

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return
