"""What a process needs to know to write its trace; sent to the collector when it boots."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX: Final = ".trace.json"
_NAME: Final = re.compile(
    r"rank(?P<rank>[0-9]+)-(?P<role>[a-z]+)-a(?P<attempt>[0-9]+)"
    r"(?:-(?P<start>[0-9]+))?(?P<older>\.older)?" + re.escape(SUFFIX)
)
_ATTEMPTS: Final = 2000
_PROCESSES: Final = 10_000
TRACKS: Final = 100
"""Threads and device streams of a process."""


class Role(StrEnum):
    """The processes of a rank."""

    LEARNER = "learner"
    COLLECTOR = "collector"


@dataclass(frozen=True)
class TraceSettings:
    """One process's trace."""

    directory: Path
    """Folder of the traces of all processes and attempts of the run."""
    rank: int
    role: Role
    attempt: int
    max_bytes: int
    """Least and newest that is kept is half of it, the most is all of it."""
    thread_time: bool = False
    """Record the CPU time of the thread in each span."""
    cuda_device: str | None = None
    """Torch device whose intervals are recorded; None for none."""

    def of(self, role: Role) -> TraceSettings:
        """The same for another process of the rank; only the learner has a device."""
        device = self.cuda_device if role is Role.LEARNER else None
        return replace(self, role=role, cuda_device=device)

    @property
    def path(self) -> Path:
        """The file."""
        return self.directory / f"rank{self.rank}-{self.role}-a{self.attempt}{SUFFIX}"

    @property
    def process_name(self) -> str:
        """As a viewer shows it."""
        attempt = f" (attempt {self.attempt})" if self.attempt > 1 else ""
        return f"rank {self.rank} {self.role}{attempt}"

    @property
    def process_number(self) -> int:
        """Number in the trace, unique over ranks and attempts of a run.

        Processes of containers and of nodes share the system's numbers, so those would not do.
        Numbers up to `TRACKS` above it are the process's threads.
        """
        process = 2 * self.rank + (self.role is Role.COLLECTOR)
        serial = self.attempt % _ATTEMPTS * _PROCESSES + process % _PROCESSES
        return TRACKS * (1 + serial)


@dataclass(frozen=True, order=True)
class TraceFile:
    """A file of a traces folder; they sort by attempt, rank, role and age."""

    attempt: int
    rank: int
    role: Role
    start: int
    newer: bool
    path: Path

    @classmethod
    def of(cls, path: Path) -> TraceFile | None:
        """What the name says; None where it is no trace of ours."""
        match = _NAME.fullmatch(path.name)
        if match is None or match["role"] not in set(Role):
            return None
        return cls(
            attempt=int(match["attempt"]),
            rank=int(match["rank"]),
            role=Role(match["role"]),
            start=int(match["start"] or 1),
            newer=match["older"] is None,
            path=path,
        )


def older(path: Path) -> Path:
    """Where the half of the window goes that is not written any more."""
    return path.with_name(path.name.removesuffix(SUFFIX) + ".older" + SUFFIX)
