"""What runs in light children of these tests: nothing here imports torch."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from drivetrain_trainer.runtime.child_process import ChildProcess

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.descriptors import Channel
    from drivetrain_trainer.runtime.doorbell import Peer


def echo(channel: Channel, parent: Peer) -> int:
    """Send every message back, until the end; the parent stands beside it."""
    while True:
        try:
            message = channel.receive()
        except EOFError:
            return 0
        channel.send((message, parent.pid))


def describe(channel: Channel, _: Peer) -> int:
    """What the child finds itself to be."""
    channel.send(
        {
            "ignored": [
                number
                for number in (signal.SIGINT, signal.SIGTERM)
                if signal.getsignal(number) is signal.SIG_IGN
            ],
            "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
            "threads": os.environ["OMP_NUM_THREADS"],
            "preloaded": "colorsys" in sys.modules,
            "path": tuple(sys.path),
        }
    )
    return 7


def fail(channel: Channel, _: Peer) -> int:
    """End with an exception."""
    channel.send("about to fail")
    raise LookupError("the wheel came off")


def deaf(channel: Channel, _: Peer) -> int:
    """Say that it runs, then look at nothing any more."""
    channel.send("awake")
    threading.Event().wait()
    return 0


def parent_of_another(channel: Channel, _: Peer) -> int:
    """Start a grandchild, say its number, and wait to be killed."""
    with ChildProcess.spawn("children:deaf", "grandchild") as grandchild:
        grandchild.channel.receive()
        channel.send(grandchild.pid)
        threading.Event().wait()
    return 0
