"""The faults, each done to one run and, where it ends, undone."""

from __future__ import annotations

import errno
import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.support.chaos.arena import Arena
from tests.support.chaos.plan import Fault, Plan, Victim

_RESET = ("-i", "lo", "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
_HOG = """
import mmap, os, sys
def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
blocks = []
while lives(int(sys.argv[1])):
    block = mmap.mmap(-1, 4 << 20)
    for page in range(0, len(block), 4096):
        block[page] = 1
    blocks.append(block)
"""
"""Takes memory until a process is killed for it."""
FILE_BYTES = 16 << 10
"""Enough to say how a rank ended, too little for a checkpoint."""
ROOM = 192 << 20
"""Of the memory cgroup, when it begins to fill."""


@dataclass
class Trouble:
    """A fault that has begun."""

    struck: bool = True
    """Whether the victim was still there."""
    again: Callable[[], object] = lambda: None
    """To be called at every look while it lasts."""
    mend: Callable[[], object] = lambda: None
    """Ends it."""
    notes: list[str] = field(default_factory=list)


def strike(plan: Plan, arena: Arena) -> Trouble:
    """Begin the fault."""
    victim = arena.find(plan.victim, plan.rank)
    if victim is None:
        return Trouble(struck=False)
    try:
        return _STRIKES[plan.fault](plan, arena, victim)
    except psutil.NoSuchProcess:
        return Trouble(struck=False)


def _kill(plan: Plan, arena: Arena, victim: psutil.Process) -> Trouble:
    del plan, arena
    victim.kill()
    return Trouble()


def _hang(plan: Plan, arena: Arena, victim: psutil.Process) -> Trouble:
    del plan, arena
    victim.suspend()
    return Trouble()


def _pause(plan: Plan, arena: Arena, victim: psutil.Process) -> Trouble:
    del plan, arena
    victim.suspend()

    def go_on() -> None:
        with suppress(psutil.NoSuchProcess):
            victim.resume()

    return Trouble(mend=go_on)


def _stop(plan: Plan, arena: Arena, victim: psutil.Process) -> Trouble:
    del arena
    victim.send_signal(signal.SIGTERM if plan.sign > 0 else signal.SIGINT)
    return Trouble()


def _fill(plan: Plan, arena: Arena, victim: psutil.Process) -> Trouble:
    del victim
    below = "logs/fill" if plan.fault is Fault.DISK_FULL else "fill"
    path = arena.work / below
    file = path.open("wb", buffering=0)
    trouble = Trouble()

    def fill() -> None:
        for size in (1 << 20, 4096, 1):
            with suppress(_FullError):
                while True:
                    _append(file.fileno(), size)

    def free() -> None:
        file.close()
        path.unlink(missing_ok=True)
        trouble.again = lambda: None

    fill()
    trouble.again, trouble.mend = fill, free
    return trouble


class _FullError(Exception):
    pass


def _append(descriptor: int, size: int) -> None:
    try:
        if os.write(descriptor, b"\0" * size) < size:
            raise _FullError
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _FullError from error


def _limit_files(plan: Plan, arena: Arena, victim: psutil.Process) -> Trouble:
    del plan, arena
    resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    return Trouble()


def _fill_memory(plan: Plan, arena: Arena, victim: psutil.Process) -> Trouble:
    """Have the kernel choose the victim: everything else in the cgroup is less to its taste."""
    del plan
    group = arena.group
    assert group is not None
    Path(f"/proc/{victim.pid}/oom_score_adj").write_text("1000")
    two = (group / "memory.max").exists()
    usage = int((group / ("memory.current" if two else "memory.usage_in_bytes")).read_text())
    limit = group / ("memory.max" if two else "memory.limit_in_bytes")
    limit.write_text(str(usage + ROOM))
    hog = subprocess.Popen(arena.inside(sys.executable, "-S", "-c", _HOG, str(victim.pid)))
    code = hog.wait(timeout=120)
    limit.write_text("max" if two else "-1")
    return Trouble(notes=[f"the hog ended with {code}"])


def _cut(plan: Plan, arena: Arena, victim: psutil.Process) -> Trouble:
    del plan, victim
    arena.do("ip", "link", "set", "lo", "down")
    return Trouble(mend=lambda: arena.do("ip", "link", "set", "lo", "up"))


def _reset(plan: Plan, arena: Arena, victim: psutil.Process) -> Trouble:
    del plan, victim
    arena.do("iptables", "-A", "INPUT", *_RESET)
    return Trouble(mend=lambda: arena.do("iptables", "-D", "INPUT", *_RESET))


def _set_clock(plan: Plan, arena: Arena, victim: psutil.Process) -> Trouble:
    path = arena.folder / "clock" / str(victim.pid)
    if not path.exists():  # it has not loaded the library yet
        return Trouble(struck=False)
    with path.open("r+b") as file:
        file.write(struct.pack("=q", round(plan.sign * plan.hours * 3600)))
    return Trouble()


_STRIKES: dict[Fault, Callable[[Plan, Arena, psutil.Process], Trouble]] = {
    Fault.KILL: _kill,
    Fault.HANG: _hang,
    Fault.PAUSE: _pause,
    Fault.STOP: _stop,
    Fault.DISK_FULL: _fill,
    Fault.STATE_FULL: _fill,
    Fault.FILE_LIMIT: _limit_files,
    Fault.MEMORY: _fill_memory,
    Fault.NETWORK: _cut,
    Fault.RESET: _reset,
    Fault.CLOCK: _set_clock,
}

TYPED_AGAIN = {(Fault.KILL, Victim.COMMAND), (Fault.STOP, Victim.COMMAND)}
"""What ends the command itself."""
