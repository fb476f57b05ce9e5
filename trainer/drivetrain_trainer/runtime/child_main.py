"""The ``__main__`` of a child process: bound to its parent before it does anything else."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.runtime.child_process import DEFERRED_SIGNALS
from drivetrain_trainer.runtime.descriptors import Channel
from drivetrain_trainer.runtime.doorbell import Peer
from drivetrain_trainer.runtime.faults import ChildFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PR_SET_PDEATHSIG: Final = 1
"""Of <sys/prctl.h>."""


def main(arguments: Sequence[str]) -> int:
    """Run `target` as a child of `parent`.

    Args:
        arguments: target (``module:function``), descriptor of the channel, parent's number.

    Returns:
        Exit status: the target's, or 1 where it raised.
    """
    target, number, parent = arguments
    learner = _bind_to(int(parent))
    if learner is None:
        return 1
    channel = Channel.adopt(int(number))
    try:
        sys.path[:], preload = channel.receive()
        for module in preload:
            importlib.import_module(module)
        return _function(target)(channel, learner)
    except Exception as error:  # noqa: BLE001  # told to the parent, which decides
        with contextlib.suppress(OSError):
            channel.send(ChildFailure.of(error))
        return 1
    finally:
        channel.close()


def _bind_to(parent: int) -> Peer | None:
    """Ignore what the parent decides on, and die with it; None where it is gone already."""
    for deferred in DEFERRED_SIGNALS:
        signal.signal(deferred, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, DEFERRED_SIGNALS)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    try:
        learner = Peer(parent, "learner")
    except ProcessLookupError:
        return None
    # Asked after both: a parent that ended before was replaced as our parent.
    return learner if os.getppid() == parent else None


def _function(target: str) -> Callable[[Channel, Peer], int]:
    module, _, name = target.partition(":")
    function: Callable[[Channel, Peer], int] = getattr(importlib.import_module(module), name)
    return function


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Nothing is left to tidy up, and taking the imported libraries down takes up to seconds
    # of the grace period that a stop has.
    os._exit(status)
