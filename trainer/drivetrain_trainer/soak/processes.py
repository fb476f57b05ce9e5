"""What a tree of processes holds, read from /proc: a few milliseconds for a training run."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.soak import ResidualProcess, SoakFigures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from drivetrain_trainer.hardware.gpu_memory import GpuMemory
    from drivetrain_trainer.soak.shared_files import SharedFiles

_PAGE: Final = resource.getpagesize()
_THREADS_FIELD: Final = 17
_RSS_FIELD: Final = 21
"""Of /proc/<pid>/stat, counted from the state, the first field behind the name."""
_COMMAND_LIMIT: Final = 1024
PSS_EVERY: Final = 6
"""Samples of which one asks for proportional memory: the kernel walks every page for it."""


@dataclass(frozen=True)
class ProcessFigures:
    """One process."""

    rss: int
    """Bytes."""
    pss: int | None
    """Bytes; None where it was not asked for, or the kernel does not tell it to us."""
    fds: int
    threads: int


@dataclass(frozen=True)
class TreeSampler:
    """Takes one sample of everything below a process."""

    pids: Callable[[], Sequence[int]]
    """Living processes of the run; zombies are not among them."""
    files: SharedFiles
    gpu: GpuMemory | None = None
    turns: Iterator[int] = field(default_factory=count)

    def __call__(self) -> SoakFigures:
        """The sums over the tree as it is now."""
        pids = self.pids()
        shared = next(self.turns) % PSS_EVERY == 0
        read = (read_process(pid, shared=shared) for pid in pids)
        found = [one for one in read if one is not None]
        shares = [one.pss for one in found]
        return SoakFigures(
            processes=len(found),
            rss_bytes=sum(one.rss for one in found),
            pss_bytes=None if None in shares or not shared else sum(share or 0 for share in shares),
            fds=sum(one.fds for one in found),
            threads=sum(one.threads for one in found),
            shm_bytes=self.files.bytes(),
            gpu_bytes=self.gpu.used(pids) if self.gpu is not None else None,
        )


def read_process(pid: int, *, shared: bool = True) -> ProcessFigures | None:
    """What a process holds; None where it has ended, or is only a zombie.

    Args:
        pid: Its id.
        shared: Ask for its proportional share as well.
    """
    folder = f"/proc/{pid}"
    try:
        fields = Path(folder, "stat").read_bytes().rpartition(b")")[2].split()
        if fields[0] in (b"Z", b"X"):
            return None
        return ProcessFigures(
            rss=int(fields[_RSS_FIELD]) * _PAGE,
            pss=_pss(folder) if shared else None,
            fds=_descriptors(folder),
            threads=int(fields[_THREADS_FIELD]),
        )
    except (FileNotFoundError, ProcessLookupError):
        return None


def _pss(folder: str) -> int | None:
    try:
        content = Path(folder, "smaps_rollup").read_bytes()
    except PermissionError:
        return None
    for line in content.splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) << 10
    return 0


def _descriptors(folder: str) -> int:
    try:
        return len(os.listdir(f"{folder}/fd"))  # noqa: PTH208 - their number alone is wanted
    except PermissionError:
        return 0


def open_files(pids: Iterable[int]) -> set[Path]:
    """Files that these processes have open, as far as we may see."""
    found: set[Path] = set()
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names alone are wanted
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - may be no path at all
            except OSError:
                continue
            if target.startswith("/"):
                found.add(Path(target))
    return found


def describe(pids: Iterable[int]) -> tuple[ResidualProcess, ...]:
    """Names and command lines of living processes."""
    found = []
    for pid in pids:
        folder = Path(f"/proc/{pid}")
        try:
            name = (folder / "comm").read_text(errors="replace").strip()
            words = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        command = b" ".join(words).decode(errors="replace")[:_COMMAND_LIMIT]
        found.append(ResidualProcess(pid=pid, name=name, command=command))
    return tuple(found)
