"""Follow a collection: a list in chunks, then a watch, for as long as the process lives.

A watch that ends, breaks, falls silent or talks nonsense is taken up again where it was. Only
where the server no longer knows that point, or where taking up fails again and again, is
everything listed anew; what such a list does not show is gone, and is swept.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from drivetrain_operator.cluster.client import Cluster, Method, WatchEvent, WatchType
from drivetrain_operator.cluster.errors import (
    UNREACHABLE,
    ApiError,
    ExpiredError,
    UnavailableError,
)
from drivetrain_operator.cluster.versions import number
from drivetrain_operator.reconcile.fields import mapping, text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from drivetrain_operator.cluster.resources import Resource
    from drivetrain_operator.reconcile.fields import Object

FRUITLESS_WATCHES: Final = 3
"""Watches in a row that bring nothing but an error before everything is listed anew."""
AT_ONCE_S: Final = 1.0
"""A watch that ends sooner, and brings nothing, is a failure: somebody in between closes it."""
_log = structlog.get_logger(__name__)


class Sink(Protocol):
    """Where the objects go; a `Store` is one."""

    def put(self, resource: Resource, obj: Object, /) -> None:
        """An object is there, in this state."""

    def delete(self, resource: Resource, obj: Object, /) -> None:
        """An object is gone; this was its last state."""

    def sweep(
        self,
        resource: Resource,
        namespace: str | None,
        seen: AbstractSet[tuple[str, str]],
        version: str,
        /,
    ) -> None:
        """All that a list of that version showed; the rest is gone."""

    def rewind(self) -> None:
        """The cluster was restored from a backup: versions so far mean nothing any more."""


@dataclass(frozen=True)
class Pace:
    """How a collection is read; all times in seconds."""

    page_size: int = 250
    """Objects of one chunk of a list; twice as many cost 30 MB more at 4,000 runs."""
    list_timeout_s: float = 60.0
    """For one chunk."""
    watch_timeout_s: float = 300.0
    """The server ends a watch after this time and up to as much again."""
    silence_s: float = 70.0
    """Without a byte for so long, a watch is dead; bookmarks come about once a minute."""
    first_delay_s: float = 0.5
    """Wait after the first failure in a row; doubled with each further one."""
    max_delay_s: float = 30.0
    clock: Callable[[], float] = time.monotonic


@dataclass
class _Scope:
    """One namespace, or all of them."""

    namespace: str | None
    alive_at: float
    version: str = ""
    """Where the watch stands; empty where a list is due."""
    reached: int = 0
    """The newest version that was ever seen, as a number."""
    listed: bool = False
    opened: bool = False
    """Whether the server let the present watch in."""
    failures: int = 0
    """In a row."""
    fruitless: int = 0
    """Of these, those at a server that was there: it may not know where the watch stands."""
    error: str = ""
    """What the last failure was; empty once all is well."""

    def stands(self, version: str) -> None:
        """Note where it stands."""
        self.version = version
        self.reached = max(self.reached, number(version))


class Reflector:
    """Keeps a sink up to date about one resource.

    Args:
        cluster: The API server.
        resource: What is followed.
        sink: Where the objects go.
        namespaces: Where; empty for everywhere.
        label_selector: Only objects with these labels.
        field_selector: Only objects with these fields.
        pace: How it is read.
    """

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource,
        sink: Sink,
        *,
        namespaces: tuple[str, ...] = (),
        label_selector: str = "",
        field_selector: str = "",
        pace: Pace | None = None,
    ) -> None:
        self.resource = resource
        self._cluster = cluster
        self._sink = sink
        self._pace = pace if pace is not None else Pace()
        self._random = random.Random()  # noqa: S311 - spreads load, hides nothing
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selectors = {key: value for key, value in selectors.items() if value}
        began = self._pace.clock()
        self._scopes = [_Scope(namespace, began) for namespace in namespaces or (None,)]
        self.synced = asyncio.Event()
        """Set once everything was listed once."""

    @property
    def last_alive(self) -> float:
        """When the API server was last heard, by the pace's clock; of the worst namespace."""
        return min(scope.alive_at for scope in self._scopes)

    @property
    def trouble(self) -> str:
        """What keeps it from following, in words; empty while all is well."""
        return "; ".join(
            f"{self.resource.plural}{f' in {s.namespace}' if s.namespace else ''}: {s.error}"
            for s in self._scopes
            if s.error
        )

    async def run(self) -> None:
        """Follow until cancelled; no failure of the API server ends it."""
        async with asyncio.TaskGroup() as group:
            for scope in self._scopes:
                group.create_task(self._follow(scope))

    async def _follow(self, scope: _Scope) -> None:
        while True:
            try:
                if not scope.version:
                    await self._list(scope)
                await self._watch(scope)
            except ApiError as error:
                await self._failed(scope, error)

    async def _failed(self, scope: _Scope, error: ApiError) -> None:
        scope.failures += 1
        scope.fruitless += scope.opened or error.reason != UNREACHABLE
        scope.error = str(error)
        if isinstance(error, ExpiredError) or scope.fruitless >= FRUITLESS_WATCHES:
            scope.version, scope.fruitless = "", 0
        delay = self._delay(scope.failures, error.retry_after)
        _log.info(
            "a watch broke and is taken up again",
            resource=self.resource.plural,
            watched_namespace=scope.namespace or "*",
            error=scope.error,
            failures=scope.failures,
            relist=not scope.version,
            delay_seconds=round(delay, 2),
        )
        await asyncio.sleep(delay)

    def _delay(self, failures: int, asked: float | None) -> float:
        """Seconds to wait: doubled each time, half of it at random; as asked, within the bound."""
        pace = self._pace
        longest = min(pace.first_delay_s * 2.0 ** min(failures - 1, 32), pace.max_delay_s)
        asked = min(asked or 0.0, pace.max_delay_s)
        return max(longest * self._random.uniform(0.5, 1.0), asked)

    async def _list(self, scope: _Scope) -> None:
        """Put every object, page by page, then sweep what was not among them.

        A page's token that expired ends in `ExpiredError`: all begins anew, and nothing is
        swept by half a list.
        """
        seen: set[tuple[str, str]] = set()
        following = ""
        while True:
            page = await self._page(scope, following)
            metadata = mapping(page, "metadata")
            version = text(metadata, "resourceVersion")
            if not version:
                raise UnavailableError(f"list {self.resource.plural}: without a resourceVersion")
            if not following and 0 < number(version) < scope.reached:
                scope.reached = 0
                self._sink.rewind()
            self._take(page, seen)
            following = text(metadata, "continue")
            if not following:
                break
        self._sink.sweep(self.resource, scope.namespace, seen, version)
        scope.stands(version)
        scope.listed = True
        if all(s.listed for s in self._scopes):
            self.synced.set()

    async def _page(self, scope: _Scope, following: str) -> Mapping[str, Any]:
        params = {**self._selectors, "limit": str(self._pace.page_size)}
        if following:
            params["continue"] = following
        page = await self._cluster.request(
            Method.GET,
            self.resource,
            namespace=scope.namespace,
            params=params,
            timeout_s=self._pace.list_timeout_s,
        )
        scope.alive_at = self._pace.clock()
        return page

    def _take(self, page: Mapping[str, Any], seen: set[tuple[str, str]]) -> None:
        items = page.get("items", False)
        if items is None:
            items = []  # Go writes an empty slice as null
        if not isinstance(items, list) or not all(isinstance(obj, dict) for obj in items):
            raise UnavailableError(f"list {self.resource.plural}: its items are no objects")
        for obj in items:
            metadata = mapping(obj, "metadata")
            self._sink.put(self.resource, obj)
            seen.add((text(metadata, "namespace"), text(metadata, "name")))

    async def _watch(self, scope: _Scope) -> None:
        """Follow from where the scope stands until the server ends the watch."""
        pace = self._pace
        scope.opened = False
        began, before = pace.clock(), scope.version

        def opened() -> None:
            scope.opened, scope.alive_at, scope.error = True, pace.clock(), ""

        events = self._cluster.watch(
            self.resource,
            namespace=scope.namespace,
            params={**self._selectors, "resourceVersion": scope.version},
            timeout_s=pace.watch_timeout_s * self._random.uniform(1.0, 2.0),
            silence_s=pace.silence_s,
            opened=opened,
        )
        async with contextlib.aclosing(events):
            async for event in events:
                self._see(scope, event)
        if scope.version == before and pace.clock() - began < AT_ONCE_S:
            raise UnavailableError(f"watch {self.resource.plural}: it ended at once")
        scope.alive_at = pace.clock()
        scope.failures = scope.fruitless = 0

    def _see(self, scope: _Scope, event: WatchEvent) -> None:
        version = text(mapping(event.object, "metadata"), "resourceVersion")
        if not version:
            raise UnavailableError(f"watch {self.resource.plural}: an event without a version")
        if event.type is WatchType.DELETED:
            self._sink.delete(self.resource, event.object)
        elif event.type is not WatchType.BOOKMARK:
            self._sink.put(self.resource, event.object)
        scope.stands(version)
        scope.alive_at = self._pace.clock()
        scope.failures = scope.fruitless = 0
        scope.error = ""
