"""A command's connection: which cluster, which namespace, and what ends it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from drivetrain_operator.kubectl.failure import Failure, explained

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from drivetrain_operator.cluster.client import Cluster

T = TypeVar("T")
_ENDED_BY: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(SystemExit):
    """A signal ended the command, after it had cleaned up; exit code 128 and the signal."""


@dataclass(frozen=True)
class Connection:
    """Which cluster and namespace, as kubectl's own options name them."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: Path | None = None

    def over(self, outer: Connection) -> Connection:
        """These options, where they are given, over those before the command's name."""
        return Connection(
            self.namespace or outer.namespace,
            self.context or outer.context,
            self.kubeconfig or outer.kubeconfig,
        )

    def arguments(self, namespace: str) -> list[str]:
        """For a kubectl that must reach the same place."""
        found = ["--namespace", namespace]
        if self.context is not None:
            found += ["--context", self.context]
        if self.kubeconfig is not None:
            found += ["--kubeconfig", str(self.kubeconfig)]
        return found


@dataclass(frozen=True)
class Session:
    """An open connection."""

    cluster: Cluster
    namespace: str
    connection: Connection


def run(connection: Connection, work: Callable[[Session], Awaitable[T]]) -> T:
    """Do `work` on the cluster.

    Raises:
        Failure: the settings name no cluster, or a request failed.
        Stopped: a signal ended it; whatever it had to clean up is cleaned up.
    """
    return asyncio.run(_worked(connection, work))


async def _worked(connection: Connection, work: Callable[[Session], Awaitable[T]]) -> T:
    task = asyncio.current_task()
    assert task is not None, "commands run inside a task"
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        if len(received) == 1:
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in _ENDED_BY:
        with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread
            loop.add_signal_handler(number, end, number)
    try:
        return await _connected(connection, work)
    except asyncio.CancelledError:
        if not received:
            raise
        raise Stopped(128 + received[0]) from None


async def _connected(connection: Connection, work: Callable[[Session], Awaitable[T]]) -> T:
    # The Kubernetes client behind these takes half a second to import: not for --help.
    from drivetrain_operator.cluster.client import Cluster  # noqa: PLC0415
    from drivetrain_operator.cluster.credentials import ConnectionSettingsError  # noqa: PLC0415
    from drivetrain_operator.cluster.errors import ApiError  # noqa: PLC0415

    try:
        cluster = await Cluster.connect(
            kubeconfig=connection.kubeconfig, context=connection.context
        )
    except ConnectionSettingsError as error:
        raise Failure(str(error), "name one by --kubeconfig or $KUBECONFIG") from None
    async with cluster:
        session = Session(cluster, connection.namespace or cluster.namespace, connection)
        try:
            return await work(session)
        except ApiError as error:
            raise explained(error, cluster.host) from None
