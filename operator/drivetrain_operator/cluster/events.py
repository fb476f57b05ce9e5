"""Events about runs: written in the background, repeated ones counted in one object.

An Event is a courtesy to the user: it waits for nothing, and what cannot be written is
logged and forgotten. Memory and writes are bounded, whatever a run does.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from drivetrain_api.base import API_VERSION, KIND
from drivetrain_operator.cluster.client import ContentType, Method
from drivetrain_operator.cluster.errors import ApiError, NotFoundError
from drivetrain_operator.cluster.resources import EVENTS
from drivetrain_operator.cluster.status_writer import FIELD_MANAGER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivetrain_api.trainingrun import ObjectMeta
    from drivetrain_operator.cluster.client import Cluster
    from drivetrain_operator.reconcile.decision import EventRecord, EventType

REPEAT_SECONDS: Final = 600.0
"""An Event that comes again within this time raises the count of the earlier one."""
WORDINGS: Final = 10
"""Different messages of one reason within that time; further ones share one Event."""
BURST: Final = 25
"""Events of one run that are written at once."""
REFILL_SECONDS: Final = 60.0
"""After a burst, one Event of a run is written in this time."""
REMEMBERED: Final = 4096
"""Runs, and reasons of runs, that are remembered; the longest unused are forgotten."""
WAITING: Final = 4096
"""Events that wait to be written; beyond it the oldest are dropped."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Topic:
    """What Events of a run are about."""

    run_uid: str
    type: EventType
    reason: str


@dataclass(frozen=True)
class _Written:
    """An Event object as it was last written."""

    name: str
    count: int
    at: float


@dataclass
class _Budget:
    """What a run may still write, filled up over time."""

    left: float
    at: float

    def take(self, now: float) -> bool:
        self.left = min(BURST, self.left + (now - self.at) / REFILL_SECONDS)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class EventRecorder:
    """Writes Events while it is entered as a context; leaving it writes what still waits.

    Args:
        cluster: The API server.
        instance: Who writes: the operator's pod.
        now: The time, with an offset.
        flush_s: Seconds that leaving may take.
    """

    def __init__(
        self,
        cluster: Cluster,
        instance: str,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        flush_s: float = 2.0,
    ) -> None:
        self._cluster = cluster
        self._instance = instance
        self._now = now
        self._flush_s = flush_s
        self._waiting: deque[tuple[ObjectMeta, EventRecord]] = deque(maxlen=WAITING)
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self._written: OrderedDict[_Topic, dict[str | None, _Written]] = OrderedDict()
        """Of each topic by message; None stands for all wordings beyond the first few."""
        self._budgets: OrderedDict[str, _Budget] = OrderedDict()
        self.dropped = 0
        """Events that were not written: too many, or refused."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), self._flush_s)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def record(self, run: ObjectMeta, events: Sequence[EventRecord]) -> None:
        """Have Events about a run written soon; for the event loop's own thread."""
        for event in events:
            if len(self._waiting) == WAITING:
                self.dropped += 1
            self._waiting.append((run, event))
            self._arrived.set()
            self._idle.clear()

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                run, event = self._waiting.popleft()
                await self._record(run, event)
            self._idle.set()

    async def _record(self, run: ObjectMeta, event: EventRecord) -> None:
        try:
            if self._affordable(run):
                await self._write(run, event)
                return
            words = "the run has too many"
        except ApiError as error:
            words = str(error)
        except Exception as error:  # noqa: BLE001 - one Event must not end the writing of all others
            _log.exception("writing an event failed", run=run.name, namespace=run.namespace)
            words = str(error)
        self.dropped += 1
        _log.warning(
            "event not written",
            run=run.name,
            namespace=run.namespace,
            reason=event.reason,
            error=words,
        )

    def _affordable(self, run: ObjectMeta) -> bool:
        now = asyncio.get_running_loop().time()
        budget = self._budgets.setdefault(run.uid, _Budget(BURST, now))
        self._budgets.move_to_end(run.uid)
        while len(self._budgets) > REMEMBERED:
            self._budgets.popitem(last=False)
        return budget.take(now)

    async def _write(self, run: ObjectMeta, event: EventRecord) -> None:
        now = asyncio.get_running_loop().time()
        written = self._recent(_Topic(run.uid, event.type, event.reason), now)
        shared = event.message not in written and len(written) >= WORDINGS
        message = None if shared else event.message
        known = written.get(message)
        if known is not None:
            again = replace(known, count=known.count + 1, at=now)
            with contextlib.suppress(NotFoundError):
                await self._raise_count(run, event, again, shared=shared)
                written[message] = again
                return
        fresh = _Written(f"{run.name}.{secrets.token_hex(8)}", 1, now)
        await self._create(run, event, fresh)
        written[message] = fresh

    def _recent(self, topic: _Topic, now: float) -> dict[str | None, _Written]:
        """What was written of a topic lately, to be added to."""
        written = self._written.setdefault(topic, {})
        self._written.move_to_end(topic)
        while len(self._written) > REMEMBERED:
            self._written.popitem(last=False)
        for message in [m for m, w in written.items() if now - w.at >= REPEAT_SECONDS]:
            del written[message]
        return written

    async def _raise_count(
        self, run: ObjectMeta, event: EventRecord, written: _Written, *, shared: bool
    ) -> None:
        """The same Event again; the newest wording stands for those that share one."""
        body: dict[str, Any] = {"count": written.count, "lastTimestamp": self._timestamp()}
        if shared:
            body["message"] = event.message
        await self._cluster.request(
            Method.PATCH,
            EVENTS,
            namespace=run.namespace,
            name=written.name,
            params={"fieldManager": FIELD_MANAGER},
            body=body,
            content_type=ContentType.MERGE_PATCH,
        )

    async def _create(self, run: ObjectMeta, event: EventRecord, written: _Written) -> None:
        stamp = self._timestamp()
        await self._cluster.request(
            Method.POST,
            EVENTS,
            namespace=run.namespace,
            params={"fieldManager": FIELD_MANAGER},
            body={
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": written.name, "namespace": run.namespace},
                "involvedObject": {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": run.name,
                    "namespace": run.namespace,
                    "uid": run.uid,
                    "resourceVersion": run.resource_version or "",
                },
                "type": event.type.value,
                "reason": event.reason,
                "message": event.message,
                "source": {"component": FIELD_MANAGER},
                "reportingComponent": FIELD_MANAGER,
                "reportingInstance": self._instance,
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
                "count": written.count,
            },
        )

    def _timestamp(self) -> str:
        return self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
