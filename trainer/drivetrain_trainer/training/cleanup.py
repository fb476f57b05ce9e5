"""Taking a rank down: every step is tried, none waits for ever, none hides the cause."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

log = structlog.get_logger(__name__)

STEP_TIMEOUT_S: Final = 5.0
"""Closing what is in memory takes milliseconds; leaving a group whose ranks are gone may hang."""
MOST_ERRORS: Final = 16
"""Errors kept; as many as a shutdown report holds."""
_LINE_LIMIT: Final = 1000

_T = TypeVar("_T")


class Cleanup:
    """Steps that let go of what a rank holds, the last made first."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        """A line each: the step, the error's class, its message."""
        self._steps: list[tuple[str, Callable[[], object]]] = []

    def add(self, name: str, step: Callable[[], object]) -> None:
        """Have `close` do `step`; `name` says what it does."""
        self._steps.append((name, step))

    def enter(self, name: str, context: AbstractContextManager[_T]) -> _T:
        """Enter a context, and have `close` leave it."""
        value = context.__enter__()
        self.add(name, lambda: context.__exit__(None, None, None))
        return value

    def attempt(
        self, name: str, step: Callable[[], object], *, timeout_s: float = STEP_TIMEOUT_S
    ) -> bool:
        """Do a step in its time; whether it was done. What goes wrong is noted and logged.

        A step that does not end is left alone in its thread: the process ends without it.
        """
        failed: list[BaseException] = []

        def run() -> None:
            try:
                step()
            except BaseException as error:  # noqa: BLE001  # told below, whatever it is
                failed.append(error)

        thread = threading.Thread(target=run, name=f"cleanup: {name}", daemon=True)
        thread.start()
        thread.join(timeout_s)
        if thread.is_alive():
            self.note(name, TimeoutError(f"not done within {timeout_s:g} s"))
            return False
        if failed:
            self.note(name, failed[0])
            return False
        return True

    def note(self, name: str, error: BaseException) -> None:
        """Keep an error of a step that was done elsewhere."""
        words = " ".join(str(error).split())
        line = f"{name}: {type(error).__name__}: {words}"[:_LINE_LIMIT]
        log.warning("cleanup step failed", step=name, error=line)
        if len(self.errors) < MOST_ERRORS:
            self.errors.append(line)

    def close(self) -> None:
        """Do every step, the last added first; a second call does nothing."""
        while self._steps:
            name, step = self._steps.pop()
            self.attempt(name, step)
