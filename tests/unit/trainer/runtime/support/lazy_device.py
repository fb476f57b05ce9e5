"""A device for a ring on the CPU: work on its stream is done when it is waited for, or later.

What a stream is given is queued, as a device does, and done in order: as late as possible, when
somebody waits for an event behind it; where `eager` says so, at once. New memory is poisoned: a
row of NaN in a batch was read before it was written.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from drivetrain_trainer.runtime.side_stream import Event

SOON: Final = 120.0
_aten: Final = torch.ops.aten
_DEFERRED: Final = {_aten.copy_.default: "copy", _aten.index_select.out: "gather"}


class LazyEvent:
    """A point in the queue of a stream, or in the learner's work."""

    def __init__(self, stream: LazyStream) -> None:
        self.passed = threading.Event()
        self._stream = stream

    def synchronize(self) -> None:
        self._stream.reach(self)


class LazyStream:
    """A side stream with a queue; `log` names what it has done."""

    def __init__(self, eager: Callable[[], bool] = lambda: False) -> None:
        self.pinned: list[Tensor] = []
        self.log: list[str] = []
        self.gate = threading.Event()
        """Closed: the device stands still; whoever waits for an event waits for the gate."""
        self.gate.set()
        self.learner_gate = threading.Event()
        """Closed: the learner's own work, up to events recorded from now on, is not done."""
        self.learner_gate.set()
        self.reached = threading.Event()
        """Set where somebody waits for an event."""
        self.error: Exception | None = None
        """What the device fails with, once."""
        self._eager = eager
        self._lock = threading.RLock()
        self._queue: deque[tuple[str, Callable[[], object]]] = deque()
        self._learner: list[LazyEvent] = []

    def use(self) -> AbstractContextManager[object]:
        return _Deferring(self)

    def record(self) -> LazyEvent:
        event = LazyEvent(self)
        self.put("event", event.passed.set)
        return event

    def record_main(self) -> LazyEvent:
        event = LazyEvent(self)
        if self.learner_gate.is_set():
            event.passed.set()
        else:
            self._learner.append(event)
        return event

    def finish_learner(self) -> None:
        """The learner's work is done."""
        self.learner_gate.set()
        for event in self._learner:
            event.passed.set()

    def wait(self, event: Event) -> None:
        assert isinstance(event, LazyEvent)
        passed = event.passed

        def wait_for_learner() -> None:
            assert passed.wait(SOON)

        self.put("wait", wait_for_learner)

    def hand_over(self, memory: Tensor, ready: Event) -> None:
        del memory
        ready.synchronize()

    def pin(self, memory: Tensor) -> None:
        self.pinned.append(memory)

    def unpin(self) -> None:
        self.pinned.clear()

    def put(self, name: str, work: Callable[[], object]) -> None:
        with self._lock:
            self._queue.append((name, work))
            while self._eager() and self._queue:
                self._do_next()

    def reach(self, event: LazyEvent) -> None:
        """Do everything before `event`."""
        self.reached.set()
        assert self.gate.wait(SOON)
        with self._lock:
            error, self.error = self.error, None
            if error is not None:
                raise error
            while not event.passed.is_set():
                self._do_next()

    def _do_next(self) -> None:
        name, work = self._queue.popleft()
        with torch._C._DisableTorchDispatch():  # whoever waits may be issuing other work
            work()
        self.log.append(name)


class _Deferring(TorchDispatchMode):
    """Queues copies and gathers that are issued within it."""

    def __init__(self, stream: LazyStream) -> None:
        super().__init__()
        self._stream = stream

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        name = _DEFERRED.get(func)
        if name is not None:
            self._stream.put(name, lambda: func(*args, **given))
            return given.get("out", args[0])
        made = func(*args, **given)
        return made.fill_(torch.nan) if func is _aten.empty.memory_format else made


# The first mode of a process makes torch import a great deal, which takes a loaded machine a
# minute: here, rather than in a thread that a test waits for.
with _Deferring(LazyStream()):
    torch.zeros(1).clone()
