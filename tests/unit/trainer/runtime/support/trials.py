"""Processes that do one thing and may die at a chosen word.

A server of them imports torch once and forks them: a trial takes milliseconds. A process begins
at a bell, so that its parent holds a descriptor of it before it can end.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from drivetrain_trainer.runtime.doorbell import Doorbell, Peer, readable
from drivetrain_trainer.runtime.faults import PeerDiedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivetrain_trainer.runtime.child_process import ChildProcess
    from drivetrain_trainer.runtime.descriptors import Channel

ENDED = 0
PEER_DIED = 3
CUT_OFF = 4
"""The write returned early."""
FAILED = 5


class Work(Protocol):
    """What one of these processes is to do."""

    @property
    def begin(self) -> Doorbell:
        """Rung when it may."""

    def live(self, parent: Peer) -> int:
        """Do it; the exit status."""


class Fatal:
    """Words of which the one of that number is the process' end, before it is written."""

    def __init__(self, words: Any, budget: list[int]) -> None:
        self._words = words
        self._budget = budget

    def __getitem__(self, place: int) -> int:
        value: int = self._words[place]
        return value

    def __setitem__(self, place: int, value: int) -> None:
        if self._budget[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._budget[0] -= 1
        self._words[place] = value


def serve(channel: Channel, parent: Peer) -> int:
    """Fork a process for each trial; say its number, then how it ended."""
    while True:
        try:
            trial = channel.receive()
        except EOFError:
            return 0
        pid = os.fork()
        if pid == 0:
            os._exit(_live(trial, parent))
        channel.send(pid)
        _, status = os.waitpid(pid, 0)
        channel.send(os.waitstatus_to_exitcode(status))


def _live(trial: Work, parent: Peer) -> int:
    try:
        readable(trial.begin, 60.0)
        return trial.live(parent)
    except PeerDiedError:
        return PEER_DIED
    except BaseException:  # noqa: BLE001  # a forked process must not go on as its parent
        return FAILED


class Server:
    """Runs trials in processes of their own."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child

    @contextmanager
    def running(self, trial: Work) -> Iterator[Peer]:
        """The trial's process, begun; killed where it still lives at the end."""
        self._child.channel.send(trial)
        pid = self._child.receive()
        assert isinstance(pid, int)
        peer = Peer(pid, "other end")
        trial.begin.ring()
        try:
            yield peer
        except BaseException:
            if peer.alive():
                os.kill(pid, signal.SIGKILL)
            self.ended()
            raise
        finally:
            peer.close()

    def ended(self) -> int:
        """How the latest one ended; waits for that."""
        code = self._child.receive()
        assert isinstance(code, int)
        return code
