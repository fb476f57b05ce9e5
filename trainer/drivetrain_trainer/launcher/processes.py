"""The processes below the launcher: all of them, whatever session they put themselves in."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_PAUSE_SECONDS = 0.02


def descendants(pid: int) -> list[int]:
    """Living processes below `pid`, parents first; zombies are not among them."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            parent = parent_of(int(entry.name))
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children.get(todo.pop(0), [])
        found += below
        todo += below
    return found


def parent_of(pid: int) -> int | None:
    """Parent of a living process; None for a zombie, and where there is no such process."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, parent = content.rpartition(b")")[2].split()[:2]
    return None if state in (b"Z", b"X") else int(parent)


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def reap() -> dict[int, int]:
    """Collect every child that has ended: process id -> exit code, negative for a signal."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def kill_descendants(seconds: float) -> None:
    """SIGKILL everything below this process until nothing is left, and collect it.

    Args:
        seconds: How long to go on: a process in uninterruptible sleep cannot be killed.
    """
    ends = time.monotonic() + seconds
    while (left := descendants(os.getpid())) and time.monotonic() < ends:
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)
        reap()
    reap()
