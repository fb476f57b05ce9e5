"""What this machine lets a trial do: namespaces, a memory cgroup, a clock of our own.

Faults for which a machine lacks the means are not drawn, and are named.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.support.chaos.plan import Fault

CLOCK_SOURCE = Path(__file__).with_name("clock.c")
_CGROUPS = Path("/sys/fs/cgroup")
_NEEDS_NAMESPACES = (Fault.DISK_FULL, Fault.STATE_FULL, Fault.NETWORK, Fault.RESET)


@dataclass(frozen=True)
class Means:
    """Found once; `folder` takes what is built."""

    folder: Path

    @cached_property
    def namespaces(self) -> bool:
        """Whether networks, mounts and firewalls of our own can be made: mostly as root."""
        tried = ("unshare", "--mount", "--net", "sh", "-c", "ip link set lo up && iptables -S")
        return shutil.which("nsenter") is not None and _works(*tried)

    @cached_property
    def memory_group(self) -> Path | None:
        """Our memory cgroup, in which others can be made (version 1, or a delegated 2)."""
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                return _writable(_CGROUPS / "memory" / path.lstrip("/"))
            if not controllers and "memory" in _controllers(_CGROUPS / path.lstrip("/")):
                # Ours has processes, so that only its parent may have further children.
                return _writable((_CGROUPS / path.lstrip("/")).parent)
        return None

    @cached_property
    def clock(self) -> Path | None:
        """The library that sets a process's clock; None without a C compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        library = self.folder / "clock.so"
        if compiler is None:
            return None
        built = _works(compiler, "-O2", "-shared", "-fPIC", "-o", library, CLOCK_SOURCE, "-ldl")
        return library if built else None

    @cached_property
    def faults(self) -> frozenset[Fault]:
        """What can be tried here."""
        missing: set[Fault] = set()
        if not self.namespaces:
            missing |= set(_NEEDS_NAMESPACES)
        if self.memory_group is None:
            missing.add(Fault.MEMORY)
        if self.clock is None:
            missing.add(Fault.CLOCK)
        if missing:
            print(f"chaos: this machine has no means for {', '.join(sorted(missing))}")
        return frozenset(Fault) - missing


def _works(*words: str | Path) -> bool:
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=60)
    except OSError:
        return False
    return done.returncode == 0


def _controllers(group: Path) -> list[str]:
    try:
        return (group.parent / "cgroup.subtree_control").read_text().split()
    except OSError:
        return []


def _writable(group: Path) -> Path | None:
    tried = group / f"chaos-{os.getpid()}"
    try:
        tried.mkdir()
        limits = any((tried / name).exists() for name in ("memory.max", "memory.limit_in_bytes"))
        tried.rmdir()
    except OSError:
        return None
    return group if limits else None
