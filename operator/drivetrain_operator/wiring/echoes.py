"""What we write must come back by the watch: the surest sign that it is not dead."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_operator.cluster.store import RunKey


class Echoes:
    """Status writes whose event is still to come.

    Args:
        clock: Seconds of a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._awaited: dict[RunKey, tuple[str, float]] = {}

    def written(self, key: RunKey, version: str) -> None:
        """The run was written and has this resourceVersion now; a run that waits goes on so."""
        _, since = self._awaited.get(key, ("", self._clock()))
        self._awaited[key] = (version, since)

    def seen(self, key: RunKey, version: str) -> None:
        """The watch showed the run with this resourceVersion."""
        awaited = self._awaited.get(key)
        if awaited is not None and not newer(awaited[0], version):
            del self._awaited[key]

    def gone(self, key: RunKey) -> None:
        """The run was deleted: nothing of it comes any more."""
        self._awaited.pop(key, None)

    def silence(self) -> float:
        """Seconds that the oldest of them has been awaited; 0 without one."""
        oldest = min((since for _, since in self._awaited.values()), default=None)
        return 0.0 if oldest is None else self._clock() - oldest


def newer(version: str, than: str) -> bool:
    """Whether a resourceVersion is later than another one of the same resource.

    They are integers on every API server that stores in etcd, and since 1.35 by contract;
    what is none is later than anything that it does not equal.
    """
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
