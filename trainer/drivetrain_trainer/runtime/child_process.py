"""A child of this process: spawned fresh, watched by pidfd, talked to over a `Channel`.

The child is a new interpreter on a module of its own rather than a fork or a
``multiprocessing`` child: nothing of the parent's ``__main__`` is imported again, no resource
tracker runs beside it, and it can start before the parent imports anything heavy.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final, Self

from drivetrain_trainer.runtime.descriptors import Channel
from drivetrain_trainer.runtime.doorbell import Peer, readable
from drivetrain_trainer.runtime.faults import ChildFailedError, ChildFailure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

DEFERRED_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM})
"""What a terminal or a process group sends to parent and child alike: the parent decides."""
_ONE_THREAD: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_REAP_TIMEOUT_S: Final = 10.0
_TALK_TIMEOUT_S: Final = 30.0
"""For a message that has begun, or a child that does not take one: it may hang in the middle."""


class ChildProcess:
    """A running child; `stop` or leave the ``with`` block to be rid of it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        channel: Channel,
        role: str,
        error: type[ChildFailedError],
    ) -> None:
        self.channel = channel
        self.role = role
        self.failure: ChildFailure | None = None
        """What the child said when it failed, as far as it was read."""
        self._process = process
        self._error = error
        self._dying = threading.Lock()
        self._reaping = threading.Lock()
        self.peer: Peer = ChildPeer(self)

    @classmethod
    def spawn(
        cls,
        target: str,
        role: str,
        *,
        preload: Sequence[str] = (),
        error: type[ChildFailedError] = ChildFailedError,
    ) -> Self:
        """Start ``module:function`` of `target` in a new interpreter.

        The function is called with the child's end of the channel and the parent as `Peer`;
        what it returns is the exit status. The child dies with the thread that calls this
        (so call it from one that lives as long as the process) and leaves SIGINT and SIGTERM
        to the parent from its first instant on. It leads a process group: what it starts
        itself, such as a simulator, is killed with it, however it ends.

        Args:
            target: what runs in the child.
            role: the child's name in errors.
            preload: modules that the child imports before it waits for its parent.
            error: what a wait raises once it has died.
        """
        ours, theirs = Channel.pair()
        ours.limit(_TALK_TIMEOUT_S)
        environment = {**os.environ, **dict.fromkeys(_ONE_THREAD, "1")}
        number = str(theirs.fileno())
        command = [sys.executable, "-m", "drivetrain_trainer.runtime.child_main"]
        # Blocked signals stay blocked across the exec: none is lost, and none reaches a child
        # that has not yet come to ignore it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, DEFERRED_SIGNALS)
        try:
            process = subprocess.Popen(  # noqa: S603  # our own module, no shell
                [*command, target, number, str(os.getpid())],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()
        ours.send((tuple(sys.path), tuple(preload)))
        return cls(process, ours, role, error)

    @property
    def pid(self) -> int:
        """Process number."""
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        if self._process.returncode is None and readable(self.peer, 0.0):
            self._reap()
        return self._process.returncode

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; whether it has ended within `timeout_s` seconds."""
        if self._process.returncode is None and not readable(self.peer, timeout_s):
            return False
        if self._process.returncode is None:
            self._reap()
        return True

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.peer.fileno(), signal.SIGKILL)
        if not self.wait(_REAP_TIMEOUT_S):
            raise TimeoutError(f"{self.role} process {self.pid} stays although it was killed")

    def _reap(self) -> None:
        """End what the child left behind, then take its exit status.

        In this order: until it is taken, no other process can get the child's number, nor
        another group.
        """
        with self._reaping:
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(_REAP_TIMEOUT_S)

    def receive(self) -> object:
        """The child's next message, None where it is a failure (then in `failure`) or the end."""
        try:
            message: object = self.channel.receive()
        except (EOFError, OSError):
            return None
        if isinstance(message, ChildFailure):
            self.failure = message
            return None
        return message

    def death(self) -> ChildFailedError:
        """The error for its end: what it said last, and its exit status."""
        with self._dying:  # more than one thread may wait for it
            while self.failure is None and self.channel.pending():
                if self.receive() is None:
                    break
        return self._error(self.role, self.pid, self.exitcode, self.failure)

    def close(self) -> None:
        """Kill it if it still runs, and close what this side holds; again does nothing."""
        if self.exitcode is None:
            self.kill()
        self.channel.close()
        self.peer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class ChildPeer(Peer):
    """The child as what a wait watches; its death is told with what the child said of it."""

    def __init__(self, child: ChildProcess) -> None:
        super().__init__(child.pid, child.role)
        self._child = child

    def death(self) -> ChildFailedError:
        """See `ChildProcess.death`."""
        return self._child.death()
