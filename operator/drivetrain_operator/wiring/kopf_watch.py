"""kopf, as far as it is used: it watches TrainingRuns and hands each event on.

No finalizer, no annotation, no Event and no patch comes from it: there are no handlers that
would need one, and what could is turned off. It runs within our event loop, after and
before everything else of the operator: on its way out it cancels tasks that it did not
find when it began.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import kopf

from drivetrain_operator.cluster.resources import TRAINING_RUNS
from drivetrain_operator.wiring.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import TypeAlias

    from drivetrain_operator.cluster.client import Cluster
    from drivetrain_operator.reconcile.fields import Object

    RunEvent: TypeAlias = Callable[[Object, bool], None]
    """Takes a run as the watch showed it, and whether it is gone."""

CHUNK: Final = 500
"""Objects of one answer while the runs are listed."""
IDLE_SECONDS: Final = 1.0
"""How long the task of a run that nothing happens to is kept."""
EXIT_SECONDS: Final = 2.0
_log = get_logger(__name__)


class RunsWatch:
    """The watch of TrainingRuns.

    Args:
        cluster: The API server.
        namespaces: Where; empty for the whole cluster.
        silence_s: Seconds without a word after which the watch is opened anew.
        on_event: Called with each event, in the event loop.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespaces: Collection[str],
        *,
        silence_s: float,
        on_event: RunEvent,
    ) -> None:
        self._cluster = cluster
        self._namespaces = tuple(namespaces)
        self._silence_s = silence_s
        self._on_event = on_event
        self._stop = asyncio.Event()
        self._existing: frozenset[asyncio.Task[Any]] = frozenset()
        self._tasks: Collection[asyncio.Task[Any]] = ()

    async def start(self) -> None:
        """Begin; signals are kopf's from here on, until somebody else takes them."""
        self._existing = frozenset(asyncio.all_tasks())
        self._tasks = await kopf.spawn_tasks(
            registry=self._registry(),
            settings=self._settings(),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            stop_flag=self._stop,
        )

    async def run(self) -> None:
        """Watch until stopped.

        Raises:
            Exception: whatever kopf could not cope with.
        """
        await kopf.run_tasks(self._tasks, ignored=self._existing)

    def stop(self) -> None:
        """Have `run` come to its end."""
        self._stop.set()

    def _registry(self) -> Any:  # noqa: ANN401 - kopf's types are not checked
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)  # type: ignore[untyped-decorator]  # kopf is not checked
        async def login(**_: object) -> object:
            return kopf.AiohttpSession(
                server=self._cluster.host,
                default_namespace=self._cluster.namespace,
                aiohttp_session=self._cluster.guest_session(),
            )

        @kopf.on.event(  # type: ignore[untyped-decorator]  # kopf is not checked
            TRAINING_RUNS.group, TRAINING_RUNS.version, TRAINING_RUNS.plural, registry=registry
        )
        async def changed(event: dict[str, Any], **_: object) -> None:
            self._on_event(event["object"], event["type"] == "DELETED")

        return registry

    def _settings(self) -> Any:  # noqa: ANN401 - kopf's types are not checked
        settings = kopf.OperatorSettings()
        settings.scanning.disabled = True
        settings.posting.enabled = False
        settings.peering.standalone = True
        settings.watching.inactivity_timeout = self._silence_s
        settings.watching.server_timeout = 300
        settings.watching.connect_timeout = 10
        settings.watching.chunk_size = CHUNK
        settings.queueing.idle_timeout = IDLE_SECONDS
        settings.queueing.exit_timeout = EXIT_SECONDS
        settings.process.ultimate_exiting_timeout = None
        return settings
