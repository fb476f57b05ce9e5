"""The latest masks, so that concurrent recorders never take each other's."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from torch import Tensor


class Denominators:
    """Masks by recorder (asyncio task, else thread) and key; whoever calls holds a lock.

    A recorder finds its own latest mask first, then the latest of any other: a task may
    record under the mask that its parent declared. Memory: one mask a key and living
    recorder.
    """

    def __init__(self) -> None:
        self._masks: WeakKeyDictionary[object, dict[str, tuple[int, Tensor]]] = WeakKeyDictionary()
        self._order = itertools.count()

    def declare(self, key: str, mask: Tensor) -> None:
        """Make `mask` the recorder's latest one of `key`."""
        self._masks.setdefault(recorder(), {})[key] = (next(self._order), mask)

    def find(self, key: str) -> Tensor | None:
        """The mask that a stat of this recorder means by `key`."""
        own = self._masks.get(recorder(), {}).get(key)
        if own is not None:
            return own[1]
        others = [masks[key] for masks in list(self._masks.values()) if key in masks]
        return max(others, key=lambda one: one[0])[1] if others else None

    def names(self) -> list[str]:
        """Every key that has a mask."""
        return sorted({key for masks in list(self._masks.values()) for key in masks})

    def forget_own(self) -> None:
        """Drop the recorder's masks; others may stand between a mask and its stat."""
        self._masks.pop(recorder(), None)


def recorder() -> object:
    """The running asyncio task, else the thread."""
    task: asyncio.Task[Any] | None = None
    with contextlib.suppress(RuntimeError):  # no loop runs in this thread
        task = asyncio.current_task()
    return task if task is not None else threading.current_thread()
