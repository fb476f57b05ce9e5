"""Processes of a pod on a node of ours, as the machine counts them: to signal and to look into."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from tests.support.kubernetes.node_slot import Slot


class PodProcesses:
    """What runs in a pod, found by its control group: whatever its kubelet knows or does.

    Args:
        slot: Of the node.
        uid: Of the pod.
    """

    def __init__(self, slot: Slot, uid: str) -> None:
        self._slot = slot
        self._uid = uid

    def all(self) -> list[psutil.Process]:
        """Every process but the one that holds the pod's namespaces, in order of start."""
        found: list[tuple[float, int, psutil.Process]] = []
        for pid in self._pids():
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE and process.name() != "sleep":
                    found.append((process.create_time(), pid, process))
        return [process for _, _, process in sorted(found, key=lambda entry: entry[:2])]

    def launcher(self) -> psutil.Process:
        """The container's first process."""
        return self.all()[0]

    def rank(self, number: int) -> psutil.Process | None:
        """The process of a rank, once it is there."""
        for process in self.all():
            with suppress(psutil.Error):
                above = process.parent()
                of_rank = process.environ().get("RANK") == str(number)
                if of_rank and above is not None and above.environ().get("RANK") is None:
                    return process
        return None

    def send(self, number: signal.Signals) -> None:
        """Send all of them a signal."""
        for process in self.all():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def shared_memory_bytes(self) -> int:
        """Size of the container's /dev/shm."""
        size = os.statvfs(f"/proc/{self.launcher().pid}/root/dev/shm")
        return size.f_blocks * size.f_frsize

    def _pids(self) -> set[int]:
        return {
            int(pid)
            for group in self._slot.groups()
            for folder in _below(group, self._uid)
            for pid in _read(folder / "cgroup.procs").split()
        }


def _below(group: Path, uid: str) -> Iterator[Path]:
    """Folders of a pod's group and of its containers'."""
    for folder, _, _ in os.walk(group):
        if f"pod{uid}" in folder:
            yield Path(folder)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # a group that just went, or a controller without the file
        return ""
