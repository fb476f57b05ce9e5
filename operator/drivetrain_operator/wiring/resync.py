"""A full look at all TrainingRuns, now and then: what a watch missed is found here at the latest.

kopf reports no deletion that happened while its watch was down, and no watch reports that
it has died: a list sweeps what is gone, and tells what the watch must have shown.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from drivetrain_operator.cluster.client import Method
from drivetrain_operator.cluster.errors import ApiError, NotFoundError
from drivetrain_operator.cluster.keys import RunKey
from drivetrain_operator.cluster.resources import TRAINING_RUNS
from drivetrain_operator.reconcile.fields import items, mapping, text
from drivetrain_operator.wiring.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivetrain_operator.cluster.client import Cluster
    from drivetrain_operator.cluster.store import Store
    from drivetrain_operator.queue import KeyedQueue
    from drivetrain_operator.wiring.echoes import Echoes

LIMIT: Final = 500
"""Objects of one answer."""
TIMEOUT_SECONDS: Final = 60.0
SPREAD_SECONDS: Final = 30.0
"""All runs are looked at again within this time, not in one burst."""
FIRST_RETRY_SECONDS: Final = 2.0
_log = get_logger(__name__)


class Resync:
    """Lists the runs, takes over what is news, and has all of them looked at.

    Args:
        cluster: The API server.
        watched: The namespaces, or None alone for the whole cluster.
        store: What is known.
        echoes: What the watch has shown.
        queue: Where runs are worked on.
        every_s: Seconds between two looks.
    """

    def __init__(
        self,
        cluster: Cluster,
        watched: Sequence[str | None],
        store: Store,
        echoes: Echoes,
        queue: KeyedQueue[RunKey],
        *,
        every_s: float,
    ) -> None:
        self._cluster = cluster
        self._watched = watched
        self._store = store
        self._echoes = echoes
        self._queue = queue
        self._every_s = every_s
        self.trouble = "TrainingRuns are not listed yet"
        """Why the runs are not known yet, in words; empty once they are."""

    async def first(self) -> None:
        """Take over what is there; waits for the definition, the permission, the server."""
        while True:
            try:
                await self.look()
            except ApiError as error:
                self.trouble = _explained(error)
                _log.warning("cannot list TrainingRuns", error=self.trouble)
                await asyncio.sleep(FIRST_RETRY_SECONDS)
            else:
                self.trouble = ""
                return

    async def run(self) -> None:
        """Look again and again, and have all runs looked at."""
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.look()
            except ApiError as error:
                # Being unwell is for the watches to say: they try again by themselves.
                _log.warning("resync failed", error=_explained(error))
            else:
                self._spread()

    async def look(self) -> None:
        """List all runs; what is news is taken over, what is gone is swept.

        Raises:
            ApiError: a list failed; what it would have swept stays.
        """
        for namespace in self._watched:
            await self._look_into(namespace)
        self._echoes.keep(set(self._store.runs()))

    async def _look_into(self, namespace: str | None) -> None:
        seen: set[RunKey] = set()
        token, version = "", ""
        while True:
            params = {"limit": str(LIMIT)} | ({"continue": token} if token else {})
            page = await self._cluster.request(
                Method.GET,
                TRAINING_RUNS,
                namespace=namespace,
                params=params,
                timeout_s=TIMEOUT_SECONDS,
            )
            for obj in items(page, "items"):
                meta = mapping(obj, "metadata")
                key = RunKey(text(meta, "namespace"), text(meta, "name"))
                seen.add(key)
                self._store.put(TRAINING_RUNS, obj)
                if key in self._store:
                    self._echoes.expect(key, text(meta, "resourceVersion"))
            told = mapping(page, "metadata")
            version = text(told, "resourceVersion")
            token = text(told, "continue")
            if not token:
                break
        self._store.sweep(TRAINING_RUNS, namespace, seen, version)

    def _spread(self) -> None:
        everyone = list(self._store.runs())
        span = min(SPREAD_SECONDS, self._every_s / 2)
        for index, key in enumerate(everyone):
            self._queue.add(key, span * index / len(everyone))


def _explained(error: ApiError) -> str:
    """The error, with what to look for where the cause is a usual one."""
    hint = " (is the TrainingRun definition installed?)"
    return f"{error}{hint}" if isinstance(error, NotFoundError) else str(error)
