"""What is known by other ways must be shown by the watch as well: else it is dead.

A write of ours comes back by the watch, and what a list shows it shows too. A watch that
owes an event and shows nothing for long is dead, whatever its connection looks like. One that
shows something is merely behind: after a start it has thousands of runs to show.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from drivetrain_operator.cluster.keys import RunKey


class Echoes:
    """What the watch of TrainingRuns has shown, and what it owes.

    Args:
        clock: Seconds of a clock that never goes back.
        apart: Whether each namespace has a watch of its own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, apart: bool = False) -> None:
        self._clock = clock
        self._apart = apart
        self._began: float | None = None
        self._heard: dict[str, float] = {}
        """When each watch last showed something, by namespace where they are apart."""
        self._shown: dict[RunKey, str] = {}
        self._owed: dict[RunKey, tuple[str, float]] = {}

    def begin(self) -> None:
        """The watch is about to be opened: from now on it can owe something."""
        self._began = self._clock()

    def expect(self, key: RunKey, version: str) -> None:
        """The run has this resourceVersion: the watch must show it, unless it has."""
        shown = self._shown.get(key)
        if shown is not None and not newer(version, shown):
            return
        owed, since = self._owed.get(key, (version, self._clock()))
        self._owed[key] = (version if newer(version, owed) else owed, since)

    def seen(self, key: RunKey, version: str) -> None:
        """The watch showed the run with this resourceVersion."""
        self._shown[key] = version
        self._heard[self._watch_of(key)] = self._clock()
        owed = self._owed.get(key)
        if owed is not None and not newer(owed[0], version):
            del self._owed[key]

    def gone(self, key: RunKey) -> None:
        """The run was deleted: nothing of it comes any more."""
        self._shown.pop(key, None)
        self._owed.pop(key, None)

    def keep(self, runs: Container[RunKey]) -> None:
        """Forget all other runs: nobody reports a deletion that a watch missed."""
        for key in {*self._shown, *self._owed}:
            if key not in runs:
                self.gone(key)

    def silence(self) -> float:
        """Seconds that a watch has owed an event and shown nothing; 0 where none owes any."""
        if self._began is None:
            return 0.0
        debts = (
            max(since, self._began, self._heard.get(self._watch_of(key), since))
            for key, (_, since) in self._owed.items()
        )
        oldest = min(debts, default=None)
        return 0.0 if oldest is None else self._clock() - oldest

    def _watch_of(self, key: RunKey) -> str:
        return key.namespace if self._apart else ""


def newer(version: str, than: str) -> bool:
    """Whether a resourceVersion is later than another one of the same resource.

    Kubernetes promises that they are integers to be compared; what is none is later than
    anything that it does not equal.
    """
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
