"""Memory as the kernel counts it for us: what may still be used, and who was killed for it.

The figures are the container's where there is one, else those of the memory cgroup that the
command was started in, and of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_UNLIMITED: Final = 1 << 60
"""cgroup v1 writes a huge number where there is no limit."""


@dataclass(frozen=True)
class _Files:
    """Names of the same facts in the two versions of the cgroup interface."""

    version: int
    limit: str
    usage: str
    cache: str
    events: str


_V1 = _Files(
    1, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control"
)
_V2 = _Files(2, "memory.max", "memory.current", "inactive_file", "memory.events")


@dataclass(frozen=True)
class AvailableMemory:
    """How much more a process tree may take."""

    bytes: int
    """Bytes."""
    source: str
    """The figure's origin, for messages."""


@dataclass(frozen=True)
class CgroupLimit:
    """A finite limit of memory."""

    bytes: int
    """Bytes."""
    version: int
    """Of the cgroup interface that states it: 1 or 2."""


class MemoryCgroup:
    """The memory cgroup of this process, version 2 or 1, and the machine around it.

    Args:
        root: Where ``proc`` and ``sys`` lie; another folder in tests alone.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._hierarchies = self._locate()
        used = next((found for found in self._hierarchies if found[1]), (_V2, ()))
        self._files, self._folders = used

    def available(self) -> AvailableMemory:
        """The least that this cgroup, one above it, or the machine leaves; page cache is free."""
        figures = [self._of_machine()]
        for folder in self._folders:
            limit = _number(folder / self._files.limit)
            usage = _number(folder / self._files.usage)
            if limit is None or usage is None or limit >= _UNLIMITED:
                continue
            cache = _fields(folder / "memory.stat").get(self._files.cache, 0)
            free = max(0, limit - max(0, usage - cache))
            shown = f"{folder / self._files.limit} ({limit} bytes) minus what is in use"
            figures.append(AvailableMemory(free, shown))
        return min(figures, key=lambda figure: figure.bytes)

    def limit_bytes(self) -> int:
        """The least limit of this cgroup, those above it, and the machine's memory."""
        limits = [_fields(self._root / "proc/meminfo").get("MemTotal:", 0) * 1024]
        limits += [
            limit
            for folder in self._folders
            if (limit := _number(folder / self._files.limit)) is not None
        ]
        return min(limits)

    def finite_limit(self) -> CgroupLimit | None:
        """The smallest finite limit that a cgroup states, ours or one above it, in either version.

        The machine's memory is not one: None where no cgroup limits it.
        """
        limits = [
            CgroupLimit(limit, files.version)
            for files, folders in self._hierarchies
            for folder in folders
            for limit in _stated_limits(folder, files)
            if limit < _UNLIMITED
        ]
        return min(limits, key=lambda limit: limit.bytes, default=None)

    def oom_kills(self) -> int:
        """Processes of this cgroup (else of the machine) that the kernel killed so far."""
        for folder in self._folders[:1]:
            count = _fields(folder / self._files.events).get("oom_kill")
            if count is not None:
                return count
        return _fields(self._root / "proc/vmstat").get("oom_kill", 0)

    def _of_machine(self) -> AvailableMemory:
        kibibytes = _fields(self._root / "proc/meminfo").get("MemAvailable:", 0)
        return AvailableMemory(kibibytes * 1024, "MemAvailable of the machine")

    def _locate(self) -> tuple[tuple[_Files, tuple[Path, ...]], ...]:
        """For each version: file names, and our cgroup's folder followed by those above it."""
        v1: tuple[Path, ...] = ()
        v2: tuple[Path, ...] = ()
        for line in _lines(self._root / "proc/self/cgroup"):
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                v1 = self._chain("cgroup", "memory", path, _V1)
            elif line.startswith("0::"):
                v2 = self._chain("cgroup2", "", path, _V2)
        return (_V1, v1), (_V2, v2)

    def _chain(self, kind: str, option: str, path: str, files: _Files) -> tuple[Path, ...]:
        for line in _lines(self._root / "proc/self/mountinfo"):
            before, _, after = line.partition(" - ")
            fields, (fstype, _, options) = before.split(), after.split(" ", 2)
            if fstype != kind or (option and option not in options.split(",")):
                continue
            mount = self._root / fields[4].lstrip("/")
            # In a container the path may be the host's: what the mount shows is ours then.
            below = path.removeprefix(fields[3].rstrip("/")).strip("/")
            folder = mount if ".." in below.split("/") else mount / below
            # Below a cgroup without the controller, those above it limit us as they do it.
            while folder != mount and not (folder / files.usage).exists():
                folder = folder.parent
            parents = [folder, *folder.parents]
            return tuple(parents[: parents.index(mount) + 1])
        return ()


def _stated_limits(folder: Path, files: _Files) -> list[int]:
    """A cgroup's own limit, and in version 1 that of those above it which we may not see."""
    above = _fields(folder / "memory.stat").get("hierarchical_memory_limit")
    own = _number(folder / files.limit)
    return [limit for limit in (own, above) if limit is not None]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    """The one number in a file; None for ``max``, and where there is no such file."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].strip().isdigit() else None


def _fields(path: Path) -> dict[str, int]:
    """Numbers of a file of ``name value`` lines."""
    rows = (line.split() for line in _lines(path))
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
