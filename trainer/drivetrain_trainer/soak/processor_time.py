"""How much of the processor time that a run asked for it got: the kernel's own account.

A loaded neighbour takes processors away, and a run then makes fewer steps a second without
having slowed down. A thread that has work but no processor waits in a run queue, and
/proc/<pid>/task/<tid>/schedstat tells for how long (Documentation/scheduler/sched-stats.rst). A
thread that sleeps, blocks or is stopped does not wait there, so a run that hangs shows no wait.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_NANOSECOND: Final = 1e-9
_LEAST_SHARE: Final = 0.1
"""However loaded the machine, a second counts for a tenth of one: a rule is never blind."""
_IDLE_FIELDS: Final = (3, 4)
_STOLEN_FIELD: Final = 7
_FIELDS: Final = 8
"""Of the first line of /proc/stat that make up all time; guests' time is in user time."""
PROC: Final = Path("/proc")


@dataclass(frozen=True)
class ProcessorTime:
    """Seconds, summed over the threads of a tree."""

    served: float = 0.0
    """On a processor."""
    waited: float = 0.0
    """With work, but without a processor."""
    stolen: float = 0.0
    """Share of the machine's working time that its host gave to others meanwhile, 0 to 1."""

    def then(self, later: ProcessorTime) -> ProcessorTime:
        """This and what followed it; the stolen shares weighted by what was asked for."""
        asked, more = self.served + self.waited, later.served + later.waited
        total = asked + more
        stolen = (self.stolen * asked + later.stolen * more) / total if total else 0.0
        return ProcessorTime(self.served + later.served, self.waited + later.waited, stolen)

    @property
    def share(self) -> float | None:
        """Share of what was asked for that was given; None where nothing was."""
        asked = self.served + self.waited
        return self.served / asked * (1 - self.stolen) if self.served > 0 else None

    def counted(self, seconds: float) -> float:
        """Of `seconds`, what a run that waits its turn can be held to.

        A wait can explain no more than itself: idle threads that are kept from waking for a
        few milliseconds do not excuse a run that hangs.
        """
        share = self.share
        if share is None or seconds <= 0:
            return seconds
        starved = min(1 - share, self.waited / seconds + self.stolen)
        return seconds * max(1 - starved, _LEAST_SHARE)


NOTHING_USED: Final = ProcessorTime()


@dataclass(frozen=True)
class _Machine:
    """Jiffies since the boot, over all processors."""

    working: int
    stolen: int


class ProcessorMeter:
    """Reads a tree's processor time from one sample to the next; nothing where it is not told."""

    def __init__(self, pids: Callable[[], Sequence[int]], proc: Path = PROC) -> None:
        """Measure from now on.

        Args:
            pids: Living processes of the run.
            proc: Where the kernel tells of them.
        """
        self._pids = pids
        self._proc = proc
        self._threads: dict[tuple[int, int], tuple[int, int]] = {}
        self._machine = self._read_machine()

    def __call__(self) -> ProcessorTime:
        """Since the last call. What threads used that have ended meanwhile is not known."""
        now = dict(self._read_threads())
        served = waited = 0
        for key, (ran, stood) in now.items():
            before = self._threads.get(key, (0, 0))
            if ran < before[0] or stood < before[1]:
                before = (0, 0)  # another thread of the same id
            served += ran - before[0]
            waited += stood - before[1]
        self._threads = now
        return ProcessorTime(served * _NANOSECOND, waited * _NANOSECOND, self._stolen())

    def _read_threads(self) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Nanoseconds on a processor and in a run queue of each thread, by process and id."""
        for pid in self._pids():
            folder = f"{self._proc}/{pid}/task"
            try:
                threads = os.listdir(folder)  # noqa: PTH208 - names alone are wanted
            except OSError:
                continue
            for thread in threads:
                try:
                    words = Path(folder, thread, "schedstat").read_bytes().split()
                    yield (pid, int(thread)), (int(words[0]), int(words[1]))
                except (OSError, ValueError, IndexError):
                    continue

    def _stolen(self) -> float:
        before, self._machine = self._machine, self._read_machine()
        if before is None or self._machine is None:
            return 0.0
        stolen = self._machine.stolen - before.stolen
        total = self._machine.working - before.working + stolen
        return min(max(stolen / total, 0.0), 1.0) if total > 0 else 0.0

    def _read_machine(self) -> _Machine | None:
        try:
            with Path(self._proc, "stat").open("rb") as file:
                words = [int(word) for word in file.readline().split()[1 : _FIELDS + 1]]
            idle = sum(words[field] for field in _IDLE_FIELDS)
            stolen = words[_STOLEN_FIELD]
        except (OSError, ValueError, IndexError):
            return None
        return _Machine(sum(words) - idle - stolen, stolen)
