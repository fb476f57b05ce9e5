"""Waiting for the first pod and its name, with a reason where they do not come.

Pods of an attempt start in any order, and a name resolves only once its pod has an address
(and a DNS server may remember for half a minute that it did not): both are retried within
one bound.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_trainer.launcher.settings import Rendezvous

log = structlog.get_logger(__name__)

_TRY_SECONDS = 5.0
_PAUSE_SECONDS = 0.5
_LOOK_SECONDS = 0.05
_UNKNOWN_NAME: Final = (socket.EAI_NONAME, socket.EAI_NODATA)


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
    _retry(
        lambda: socket.create_connection(address, timeout=_TRY_SECONDS).close(),
        f"the first pod cannot be reached at {address[0]}:{address[1]}",
        seconds,
        stopped=stopped,
        pause=pause,
    )


def await_own_name(
    rendezvous: Rendezvous,
    seconds: float,
    *,
    stopped: Callable[[], bool],
    pause: Callable[[float], None],
) -> None:
    """Wait until the first pod itself can resolve the name that the others use for it.

    Args:
        rendezvous: Where it will listen.
        seconds: How long to try.
        stopped: Whether to give up without an error.
        pause: Waits; wakes early on a signal.

    Raises:
        UnreachableError: with the last reason.
    """
    address = (rendezvous.master_addr, rendezvous.master_port)
    _retry(
        lambda: socket.getaddrinfo(*address, type=socket.SOCK_STREAM),
        f"this pod, the first, cannot be found under its own name {address[0]}",
        seconds,
        stopped=stopped,
        pause=pause,
    )


def _retry(
    action: Callable[[], object],
    problem: str,
    seconds: float,
    *,
    stopped: Callable[[], bool],
    pause: Callable[[float], None],
) -> None:
    ends = time.monotonic() + seconds
    reason = ""
    while not stopped():
        attempt = _Attempt(action)
        attempt.start()
        while attempt.is_alive() and not stopped():
            attempt.join(_LOOK_SECONDS)
        if attempt.done or stopped():
            return
        found = _reason(attempt.error)
        if found != reason:
            log.info("waiting for the first pod", problem=problem, reason=found)
        reason = found
        if time.monotonic() >= ends:
            raise UnreachableError(f"{problem} within {seconds:.0f} s: {reason}")
        pause(_PAUSE_SECONDS)


class _Attempt(threading.Thread):
    """One try, which a stop must not wait for: a resolver may take half a minute."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__(name="reach-first-pod", daemon=True)
        self._action = action
        self.done = False
        self.error: OSError = TimeoutError()

    def run(self) -> None:
        try:
            self._action()
        except OSError as error:
            self.error = error
        else:
            self.done = True


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        if error.errno in _UNKNOWN_NAME:
            return (
                f"its name does not resolve ({error.strerror}): has its pod an address, and is "
                "its headless Service there?"
            )
        return (
            f"its name does not resolve ({error.strerror}): no DNS server answers; is a network "
            "policy in the way of port 53?"
        )
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there: its launcher has not started torchrun, or has ended"
    if isinstance(error, TimeoutError):
        return "no answer: is a network policy in the way?"
    return error.strerror or str(error)
