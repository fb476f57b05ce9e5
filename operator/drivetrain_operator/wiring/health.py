"""Liveness and readiness that tell the truth, and the servers that tell it.

Live means: a restart would not help. Ready means: runs are worked on, or this replica stands
by for the one that works on them. Each answer names every reason against it.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from aiohttp import web

from drivetrain_operator.wiring.logs import get_logger
from drivetrain_operator.wiring.metrics import CONTENT_TYPE, Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

Check: TypeAlias = "Callable[[], Iterable[str]]"
"""Reasons against being healthy, in words; none where all is well."""

TROUBLED_PATIENCE: Final = 5
"""How much longer a watch may be silent that tries again after errors."""
_log = get_logger(__name__)


class Health:
    """The checks, asked anew each time: nothing is remembered that could be out of date."""

    def __init__(self) -> None:
        self._live: list[Check] = []
        self._ready: list[Check] = []

    def add(self, *, live: Check | None = None, ready: Check | None = None) -> None:
        """Ask these from now on; what is not live is not ready either."""
        if live is not None:
            self._live.append(live)
        if ready is not None:
            self._ready.append(ready)

    def not_live(self) -> list[str]:
        """Why a restart would help."""
        return [reason for check in self._live for reason in check()]

    def not_ready(self) -> list[str]:
        """Why runs are not worked on."""
        reasons = [reason for check in (*self._live, *self._ready) for reason in check()]
        return list(dict.fromkeys(reasons))


@dataclass(frozen=True)
class Limits:
    """How old something may be before it is a reason."""

    stuck_seconds: float
    """A pass, or runs that wait while no pass ends."""
    silent_seconds: float
    """A watch that says nothing: it would have been opened anew by then."""


def queue_check(
    oldest_wait: Callable[[], float],
    oldest_work: Callable[[], float],
    since_pass: Callable[[], float],
    limits: Limits,
) -> Check:
    """Reasons from the queue: nobody takes what is due, or a pass does not end.

    A long wait alone is none: after a burst the workers are busy, and a restart would only
    begin the burst anew.

    Args:
        oldest_wait: Seconds that the run due for longest has waited.
        oldest_work: Seconds that the longest pass in work has lasted.
        since_pass: Seconds since a pass ended.
        limits: What is too long.
    """

    def check() -> Iterable[str]:
        waited, worked = min(oldest_wait(), since_pass()), oldest_work()
        if waited > limits.stuck_seconds:
            yield f"queue stuck: runs wait and no pass has ended for {waited:.0f} s"
        if worked > limits.stuck_seconds:
            yield f"queue stuck: a pass has lasted {worked:.0f} s"

    return check


@dataclass(frozen=True)
class WatchState:
    """How one watch stands."""

    resource: str
    silence: float
    """Seconds since the server was last heard, or since it owes an event."""
    trouble: str = ""
    """Why it cannot follow at the moment, in words; it tries again by itself."""


def watch_check(watches: Callable[[], Iterable[WatchState]], limits: Limits) -> Check:
    """Reasons from the watches: silent for longer than a sound one ever is.

    One that knows its trouble and tries again gets more time: a restart brings no API
    server back.
    """

    def check() -> Iterable[str]:
        for watch in watches():
            patience = TROUBLED_PATIENCE if watch.trouble else 1
            if watch.silence > patience * limits.silent_seconds:
                words = f" ({watch.trouble})" if watch.trouble else ""
                yield f"stale watch: {watch.resource} silent for {watch.silence:.0f} s{words}"

    return check


def trouble_check(watches: Callable[[], Iterable[WatchState]]) -> Check:
    """Reasons from the watches that try again: what is decided may rest on old views."""

    def check() -> Iterable[str]:
        return (f"watch in trouble: {watch.trouble}" for watch in watches() if watch.trouble)

    return check


HEALTH: Final = web.AppKey("health", Health)
METRICS: Final = web.AppKey("metrics", Metrics)


def health_app(health: Health) -> web.Application:
    """`/livez` and `/readyz`: 200 and `ok`, or 503 and a reason a line."""
    app = web.Application()
    app[HEALTH] = health
    app.router.add_get("/livez", _livez)
    app.router.add_get("/readyz", _readyz)
    return app


def metrics_app(metrics: Metrics) -> web.Application:
    """`/metrics` in Prometheus' text format."""
    app = web.Application()
    app[METRICS] = metrics
    app.router.add_get("/metrics", _metrics)
    return app


@contextlib.asynccontextmanager
async def serving(app: web.Application, port: int, what: str) -> AsyncIterator[int]:
    """Serve on all addresses for as long as the context lasts; yields the port.

    Raises:
        OSError: the port is taken.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.SockSite(runner, _listening(port))
        await site.start()
        bound: int = runner.addresses[0][1]
        _log.info("serving", what=what, port=bound)
        yield bound
    finally:
        await runner.cleanup()


def _listening(port: int) -> socket.socket:
    """A socket on all addresses, IPv6 and IPv4 alike where the machine has both."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


async def _livez(request: web.Request) -> web.Response:
    return _answer(request.app[HEALTH].not_live())


async def _readyz(request: web.Request) -> web.Response:
    return _answer(request.app[HEALTH].not_ready())


def _answer(reasons: list[str]) -> web.Response:
    if not reasons:
        return web.Response(text="ok\n")
    return web.Response(status=503, text="".join(f"{reason}\n" for reason in reasons))


async def _metrics(request: web.Request) -> web.Response:
    body = request.app[METRICS].text()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
