"""What a proxy can do to a call, and for how many calls it does it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self

from tests.support.kubernetes.calls import Call, Selector


@dataclass(frozen=True)
class Refuse:
    """Answer with an error; the server never hears of the call."""

    code: int
    reason: str = ""
    """Status reason; the usual one of the code where empty."""
    message: str = "injected"
    retry_after_s: int | None = None

    def status(self) -> dict[str, Any]:
        """The answer's body."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason or _REASONS.get(self.code, "InternalError"),
            "code": self.code,
        }
        if self.retry_after_s is not None:
            body["details"] = {"retryAfterSeconds": self.retry_after_s}
        return body


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True)
class Delay:
    """Wait before the server hears of the call; then all goes its way."""

    seconds: float


class Fault(Enum):
    """Faults that need no figures."""

    HANG = auto()
    """No answer, and the server never hears of it; the connection drops once lifted."""
    DROP = auto()
    """The connection drops, and the server never hears of it."""
    LOSE_ANSWER = auto()
    """The server acts, and the connection drops before the client is told."""
    SILENCE = auto()
    """A watch that starts, stays open, and never tells anything."""


Action = Refuse | Delay | Fault


@dataclass(eq=False)
class Injection:
    """A fault in force; leave the ``with`` block, or call `lift`, to end it."""

    selector: Selector
    action: Action
    times: int | None = None
    """Calls to hit; all where None."""
    skip: int = 0
    """Matching calls to let pass first."""
    hits: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _lifted: bool = False
    _seen: int = 0

    def take(self, call: Call) -> bool:
        """Whether this call is hit; counts it."""
        with self._changed:
            if self._lifted or not self.selector.matches(call):
                return False
            self._seen += 1
            if self._seen <= self.skip or (self.times is not None and self.hits >= self.times):
                return False
            self.hits += 1
            self._changed.notify_all()
            return True

    def wait(self, hits: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until so many calls were hit.

        Raises:
            TimeoutError: They were not.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= hits, timeout_s):
                raise TimeoutError(f"{self.hits} of {hits} calls to {self.selector} were hit")

    @property
    def lifted(self) -> bool:
        """Whether it is over."""
        return self._lifted

    def lift(self) -> None:
        """End it."""
        with self._changed:
            self._lifted = True
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.lift()


class Moment(Enum):
    """When a hook is called."""

    BEFORE = auto()
    """The server has not heard of the call yet."""
    AFTER = auto()
    """The server has acted, and the client has not been told yet."""


@dataclass(eq=False)
class Hook:
    """Calls back at the Nth matching call, which waits meanwhile; from a thread of its own."""

    selector: Selector
    number: int
    """From 1."""
    moment: Moment
    callback: Callable[[Call], object]
    seen: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    """Set once the callback has returned."""

    def due(self, call: Call, moment: Moment) -> bool:
        """Whether to call back now; counts the call."""
        if moment is not self.moment or not self.selector.matches(call):
            return False
        self.seen += 1
        return self.seen == self.number

    def run(self, call: Call) -> None:
        """Call back."""
        try:
            self.callback(call)
        finally:
            self.done.set()
