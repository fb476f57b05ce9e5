"""The process: connect, serve health and metrics, wait to lead, work, stop in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from enum import IntEnum
from typing import TYPE_CHECKING

from drivetrain_operator.cluster.client import Cluster
from drivetrain_operator.cluster.events import EventRecorder
from drivetrain_operator.cluster.lease import LeaderElection, own_identity
from drivetrain_operator.wiring.health import Health, health_app, metrics_app, serving
from drivetrain_operator.wiring.logs import get_logger
from drivetrain_operator.wiring.metrics import Metrics
from drivetrain_operator.wiring.work import Surroundings, Work

if TYPE_CHECKING:
    from drivetrain_operator.wiring.settings import OperatorSettings

_log = get_logger(__name__)


class Ending(IntEnum):
    """Why the process ends: its exit status."""

    STOPPED = 0
    """It was asked to."""
    FAILED = 1
    """A part of it failed, or the Lease was lost: to be started again."""


async def serve(settings: OperatorSettings) -> Ending:
    """Run the operator until a signal, a lost Lease or a failure ends it.

    Raises:
        ConnectionSettingsError: no cluster can be told from the settings.
        OSError: a port is taken.
    """
    metrics, health = Metrics(), Health()
    stop = asyncio.Event()
    _listen(stop)
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            await Cluster.connect(
                kubeconfig=settings.kubeconfig, context=settings.context, observer=metrics.called
            )
        )
        await stack.enter_async_context(serving(health_app(health), settings.health_port, "health"))
        await stack.enter_async_context(
            serving(metrics_app(metrics), settings.metrics_port, "metrics")
        )
        _log.info("connected", server=cluster.host, namespaces=settings.namespaces or "all")
        lease = _lease(settings, cluster) if settings.leader_elect else None
        if lease is not None:
            health.add(
                live=lambda: ["the Lease was lost"] if lease.lost.is_set() else (),
                ready=lambda: [f"the Lease: {lease.trouble}"] if lease.trouble else (),
            )
            acquired = asyncio.create_task(lease.acquire())
            # Released last: until then nobody else may work.
            stack.push_async_callback(lease.release)
            if await _ends_first(acquired, stop):
                return Ending.STOPPED
            if acquired.exception() is not None:
                return Ending.FAILED
        leading = (lambda: True) if lease is None else (lambda: lease.held)
        recorder = await stack.enter_async_context(EventRecorder(cluster, socket.gethostname()))
        metrics.lead(leading)
        work = Work(settings, Surroundings(cluster, recorder, metrics, health, leading))
        running = asyncio.create_task(work.run(lambda: _listen(stop)))
        ends = (stop,) if lease is None else (stop, lease.lost)
        asked = await _ends_first(running, *ends)
        lost = lease is not None and lease.lost.is_set()
        _log.info("stopped", asked=stop.is_set(), lease_lost=lost)
        return Ending.STOPPED if asked and not lost else Ending.FAILED


def _listen(stop: asyncio.Event) -> None:
    """Have a signal set `stop`; a second one does no more."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def _lease(settings: OperatorSettings, cluster: Cluster) -> LeaderElection:
    """The Lease; it goes with our account, so that an uninstalled operator leaves none."""
    namespace = settings.lease_namespace or cluster.namespace
    account = cluster.account
    owner = account.owner() if account is not None and account.namespace == namespace else None
    return LeaderElection(cluster, settings.lease_name, namespace, own_identity(), owner=owner)


async def _ends_first(task: asyncio.Task[None], *events: asyncio.Event) -> bool:
    """Wait for the task, or for one of the events, which ends the task in its own time.

    Returns:
        Whether an event came first.
    """
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait((task, *waits), return_when=asyncio.FIRST_COMPLETED)
        came = any(event.is_set() for event in events)
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    except Exception:  # noqa: BLE001 - whatever it is, the process ends for it and says so
        _log.exception("the operator failed")
        return False
    finally:
        for wait in waits:
            wait.cancel()
    return came
