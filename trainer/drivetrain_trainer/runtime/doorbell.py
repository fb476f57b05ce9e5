"""Signals between two processes: who rings, who waits, and what ends a wait.

A `Doorbell` counts. Every publication into shared memory is followed by one ring, and a
reader trusts only as many publications as it has collected rings: the kernel's lock on the
counter orders the memory, which Python itself cannot do.
"""

from __future__ import annotations

import math
import os
import select
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_trainer.runtime.descriptors import Descriptor
from drivetrain_trainer.runtime.faults import PeerDiedError, StopRequestedError

if TYPE_CHECKING:
    from collections.abc import Callable


class Doorbell:
    """An eventfd; sent to the other process through a `Channel`."""

    def __init__(self) -> None:
        self._descriptor = Descriptor(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def ring(self, times: int = 1) -> None:
        """Add to the count and wake whoever waits."""
        os.eventfd_write(self._descriptor.fileno(), times)

    def collect(self) -> int:
        """Rings since the last collection, 0 when there were none; never waits."""
        try:
            return os.eventfd_read(self._descriptor.fileno())
        except BlockingIOError:
            return 0

    def fileno(self) -> int:
        """The descriptor, readable while there are rings to collect."""
        return self._descriptor.fileno()

    def close(self) -> None:
        """Close it; a second time does nothing."""
        self._descriptor.close()


class Interrupt:
    """Ends waits of this process; once set, for good. May be set from a signal handler."""

    def __init__(self) -> None:
        self._bell = Doorbell()
        self._set = False

    def set(self) -> None:
        """End the wait in progress, and every later one that is given this interrupt."""
        self._set = True
        self._bell.ring()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._set

    def fileno(self) -> int:
        """The descriptor, readable once set."""
        return self._bell.fileno()

    def close(self) -> None:
        """Close it; a second time does nothing."""
        self._bell.close()


class Peer:
    """The process at the other end, held by a pidfd: its number is never taken for another's."""

    def __init__(self, pid: int, role: str) -> None:
        self.pid = pid
        self.role = role
        self._descriptor = Descriptor(os.pidfd_open(pid))

    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return not readable(self, 0.0)

    def death(self) -> PeerDiedError:
        """The error that a wait raises once it has ended."""
        return PeerDiedError(self.role, self.pid)

    def fileno(self) -> int:
        """The pidfd, readable once the process has ended."""
        return self._descriptor.fileno()

    def close(self) -> None:
        """Close it; a second time does nothing."""
        self._descriptor.close()


@dataclass(frozen=True)
class Meanwhile:
    """Work to be done during a wait each time a second bell rings; `run` collects that bell."""

    bell: Doorbell
    run: Callable[[], object]


def readable(source: Doorbell | Interrupt | Peer, timeout_s: float) -> bool:
    """Whether `source` becomes readable within `timeout_s` seconds."""
    poller = select.poll()
    poller.register(source, select.POLLIN)
    return bool(poller.poll(math.ceil(timeout_s * 1e3)))


def wait(
    bell: Doorbell,
    peer: Peer,
    timeout_s: float | None,
    *,
    interrupt: Interrupt | None = None,
    meanwhile: Meanwhile | None = None,
) -> int:
    """Wait for rings of `bell`; what the peer rang before it died still counts.

    Args:
        bell: what is waited for.
        peer: who rings it.
        timeout_s: seconds at most; None waits as long as the peer lives.
        interrupt: ends the wait early.
        meanwhile: work for this process while it waits.

    Returns:
        Rings collected, at least 1; 0 when the time is up.

    Raises:
        PeerDiedError: the peer ended (within milliseconds of it).
        StopRequestedError: `interrupt` was set.
    """
    poller = select.poll()
    for source in (bell, peer, interrupt, meanwhile.bell if meanwhile else None):
        if source is not None:
            poller.register(source, select.POLLIN)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left = None if deadline is None else max(0, math.ceil((deadline - time.monotonic()) * 1e3))
        ready = {fd for fd, _ in poller.poll(left)}
        # Collecting also where only the peer was seen: it may have rung between poll and end.
        if bell.fileno() in ready or peer.fileno() in ready:
            rings = bell.collect()
            if rings:
                return rings
        if meanwhile is not None and meanwhile.bell.fileno() in ready:
            meanwhile.run()
        elif peer.fileno() in ready:
            raise peer.death()
        elif interrupt is not None and interrupt.fileno() in ready:
            raise StopRequestedError
        if left == 0:
            return 0
