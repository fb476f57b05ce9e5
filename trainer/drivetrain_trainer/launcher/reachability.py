"""Waiting for the first pod, with a reason where it cannot be reached."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_trainer.launcher.settings import Rendezvous

log = structlog.get_logger(__name__)

_TRY_SECONDS = 5.0
_PAUSE_SECONDS = 0.5


class UnreachableError(Exception):
    """The first pod did not answer in time; another attempt may find it there."""


def await_master(
    rendezvous: Rendezvous,
    seconds: float,
    *,
    stopped: Callable[[], bool],
    pause: Callable[[float], None],
) -> None:
    """Wait until the pod of rank 0 accepts a connection, or a stop is asked for.

    Args:
        rendezvous: Where it should listen.
        seconds: How long to try.
        stopped: Whether to give up without an error.
        pause: Waits; wakes early on a signal.

    Raises:
        UnreachableError: with the last reason: a name that is not known, a refused or a
            filtered connection.
    """
    address = (rendezvous.master_addr, rendezvous.master_port)
    ends = time.monotonic() + seconds
    reason = ""
    while not stopped():
        try:
            socket.create_connection(address, timeout=_TRY_SECONDS).close()
        except OSError as error:
            found = _reason(error)
            if found != reason:
                log.info("waiting for the first pod", address=address, reason=found)
            reason = found
        else:
            return
        if time.monotonic() >= ends:
            raise UnreachableError(
                f"the first pod cannot be reached at {address[0]}:{address[1]} "
                f"within {seconds:.0f} s: {reason}"
            )
        pause(_PAUSE_SECONDS)


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"its name does not resolve ({error.strerror}); is its Service there?"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there: its launcher has not started torchrun, or has ended"
    if isinstance(error, TimeoutError):
        return "no answer: is a network policy in the way?"
    return error.strerror or str(error)
