"""Slots: names and addresses of the nodes of one machine, one lock a slot.

A slot is held by an open lock, which the kernel lets go when its holder ends, however that
ends. Who takes a slot removes what a dead holder left in it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

LOCKS = Path("/run/lock/drivetrain-nodes")
CGROUPS = Path("/sys/fs/cgroup")
SLOTS = range(64)


class NoSlotError(RuntimeError):
    """Every slot is held by a living node."""


@dataclass
class Slot:
    """One node's place: everything outside its own namespaces is named after `number`."""

    number: int
    descriptor: int
    """Of the lock; closing it gives the slot back."""
    folder: Path | None = field(default=None)
    """The node's files, recorded so that another finds them."""

    @property
    def link(self) -> str:
        """The host's end of the link to the node."""
        return f"drivetrain{self.number}"

    @property
    def host(self) -> str:
        """The host's address on the link; of the range reserved for tests of networks."""
        return f"198.18.{self.number}.1"

    @property
    def node(self) -> str:
        """The node's address."""
        return f"198.18.{self.number}.2"

    @property
    def cgroup(self) -> str:
        """Name of the group below which the pods' groups are."""
        return f"drivetrain-node-{self.number}"

    @classmethod
    def take(cls) -> Slot:
        """Take a free slot; every slot whose holder died is cleaned on the way.

        Raises:
            NoSlotError: There is none.
        """
        LOCKS.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken: Slot | None = None
        for number in SLOTS:
            if taken is not None and not _record(number).exists():
                continue
            slot = cls._try(number)
            if slot is None:
                continue
            slot.clean()
            if taken is None:
                taken = slot
            else:
                slot.release()
        if taken is None:
            raise NoSlotError(f"{len(SLOTS)} nodes run on this machine; stop one")
        return taken

    @classmethod
    def _try(cls, number: int) -> Slot | None:
        descriptor = os.open(LOCKS / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        record = _record(number)
        folder = Path(json.loads(record.read_text())["folder"]) if record.exists() else None
        return cls(number, descriptor, folder)

    def record(self, folder: Path) -> None:
        """Remember where the node's files are, before there are any."""
        _record(self.number).write_text(json.dumps({"folder": str(folder), "pid": os.getpid()}))
        self.folder = folder

    def clean(self) -> None:
        """Remove the link, the groups and the files; nothing runs in them any more."""
        subprocess.run(["ip", "link", "del", self.link], capture_output=True, check=False)
        for group in self.groups():
            remove_group(group)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
        _record(self.number).unlink(missing_ok=True)

    def groups(self) -> Iterator[Path]:
        """The node's groups, of every controller's hierarchy or of the one of version 2."""
        for top in hierarchies():
            if (top / self.cgroup).is_dir():
                yield top / self.cgroup

    def release(self) -> None:
        """Give the slot back."""
        os.close(self.descriptor)


def _record(number: int) -> Path:
    return LOCKS / f"{number}.json"


def hierarchies() -> list[Path]:
    """Mount points of the machine's control groups."""
    if (CGROUPS / "cgroup.procs").exists():
        return [CGROUPS]
    return sorted(path.parent for path in CGROUPS.glob("*/cgroup.procs"))


def make_group(name: str) -> None:
    """Make a group to put pods' groups below, with every controller that a kubelet needs."""
    for top in hierarchies():
        group = top / name
        group.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):  # empty in a new one of version 1
            if (top / setting).exists() and (group / setting).exists():
                (group / setting).write_text((top / setting).read_text())
        controllers = group.parent / "cgroup.controllers"  # of version 2, handed down one by one
        for controller in controllers.read_text().split() if controllers.exists() else ():
            (group.parent / "cgroup.subtree_control").write_text(f"+{controller}")


def kill_group(name: str) -> None:
    """Kill every process of a group and of those below it."""
    for top in hierarchies():
        for path in (top / name).rglob("cgroup.procs"):
            for pid in path.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def remove_group(group: Path) -> None:
    """Remove a group and those below it, whose processes are gone."""
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            Path(folder).rmdir()
        except OSError:
            continue
