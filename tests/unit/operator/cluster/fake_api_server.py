"""An API server in memory, over real HTTP: chunked lists, watches with history, and faults."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from drivetrain_operator.cluster.client import Cluster
from drivetrain_operator.cluster.resources import Resource

Object = dict[str, Any]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
TOKEN = "token-1"


def status(code: int, reason: str = "", message: str = "no", **details: Any) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def refuse(code: int, reason: str = "", message: str = "no", **details: Any) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(status(code, reason, message, **details), status=code)

    return answer


def raw(content: bytes, code: int = 200) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content, status=code)

    return answer


async def drop(request: web.Request) -> web.StreamResponse:
    """The connection breaks before an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@dataclass
class Watcher:
    """An open watch: what is put into its queue goes out as it is; None ends it."""

    request: web.Request
    queue: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    silent: bool = False


@dataclass
class Change:
    version: int
    type: str
    collection: str
    """Path of the collection in all namespaces."""
    object: Object


class FakeApiServer:
    """Serves whatever is put into it; as many resources as one likes."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[tuple[str, str, str], Object] = {}
        """By collection, namespace and name."""
        self.history: list[Change] = []
        self.compacted = 0
        """Watches from before this version are too old."""
        self.expired_pages = False
        self.watchers: list[Watcher] = []
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.tokens = {TOKEN}
        self.lists: deque[Answer] = deque()
        """Answers to the next lists (and whatever is no watch), instead of the real ones."""
        self.watches: deque[Answer] = deque()
        """Answers to the next watches."""
        self.between_pages: Callable[[], None] = lambda: None
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            app, shutdown_timeout=0.01, access_log=None, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end_watches()
        assert self._runner is not None
        await self._runner.cleanup()

    def kubeconfig(self, folder: Path, user: str = f"{{token: {TOKEN}}}") -> Path:
        path = folder / "kubeconfig"
        path.write_text(
            f"""
apiVersion: v1
kind: Config
current-context: here
contexts:
- {{name: here, context: {{cluster: fake, user: me, namespace: team}}}}
- {{name: other, context: {{cluster: fake, user: me}}}}
clusters: [{{name: fake, cluster: {{server: "{self.url}"}}}}]
users: [{{name: me, user: {user}}}]
"""
        )
        return path

    async def connect(self, folder: Path, **options: Any) -> Cluster:
        return await Cluster.connect(kubeconfig=self.kubeconfig(folder), **options)

    # --- what happens on it --------------------------------------------------------------

    def put(self, resource: Resource, obj: Object) -> Object:
        """Create or change an object; watchers are told."""
        meta = obj["metadata"]
        key = (resource.path(None), meta["namespace"], meta["name"])
        self.version += 1
        kind = "MODIFIED" if key in self.objects else "ADDED"
        stored = {**obj, "metadata": {**meta, "resourceVersion": str(self.version)}}
        self.objects[key] = stored
        self._tell(Change(self.version, kind, key[0], stored))
        return stored

    def delete(self, resource: Resource, namespace: str, name: str) -> None:
        self.version += 1
        gone = self.objects.pop((resource.path(None), namespace, name))
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self._tell(Change(self.version, "DELETED", resource.path(None), gone))

    def bookmark(self) -> None:
        """Tell every watcher where it stands, changes elsewhere included."""
        self.version += 1
        mark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}}
        self.say(json.dumps(mark).encode() + b"\n")

    def say(self, words: bytes) -> None:
        """Bytes to every open watch."""
        for watcher in self.watchers:
            watcher.queue.put_nowait(words)

    def end_watches(self) -> None:
        """End open watches as the server does when their time is over."""
        for watcher in self.watchers:
            watcher.queue.put_nowait(None)

    def cut_watches(self) -> None:
        """Break the connections of open watches."""
        for watcher in self.watchers:
            if watcher.request.transport is not None:
                watcher.request.transport.abort()

    def silence_watches(self) -> None:
        """Open watches stay open and tell nothing more."""
        for watcher in self.watchers:
            watcher.silent = True

    def compact(self) -> None:
        """Forget history: a watch from before now gets 410."""
        self.version += 1
        self.compacted = self.version
        self.history.clear()

    def _tell(self, change: Change) -> None:
        self.history.append(change)
        for watcher in self.watchers:
            if _concerns(change, watcher.request.path):
                watcher.queue.put_nowait(_line(change))

    # --- serving -------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        if request.headers.get("Authorization") not in {f"Bearer {t}" for t in self.tokens}:
            return await refuse(401, "Unauthorized", "who are you")(request)
        scripted = self.watches if "watch" in request.query else self.lists
        if scripted:
            return await scripted.popleft()(request)
        if "watch" in request.query:
            return await self._watch(request)
        return self._list(request)

    def _list(self, request: web.Request) -> web.StreamResponse:
        found = [
            obj
            for key, obj in sorted(self.objects.items())
            if _covers(request.path, key[0], key[1])
        ]
        limit, token = int(request.query.get("limit", "0")), request.query.get("continue", "")
        begin, version = (int(part) for part in token.split("-")) if token else (0, self.version)
        if token:
            self.between_pages()
            if self.expired_pages:
                self.expired_pages = False
                return web.json_response(status(410, "Expired", "token too old"), status=410)
        page = found[begin : begin + limit] if limit else found
        metadata = {"resourceVersion": str(version)}
        if limit and begin + limit < len(found):
            metadata["continue"] = f"{begin + limit}-{version}"
        return web.json_response({"metadata": metadata, "items": page or None})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        begin = int(request.query["resourceVersion"])
        if begin < self.compacted:
            return web.json_response({"type": "ERROR", "object": status(410, "Expired", "old")})
        response = web.StreamResponse()
        await response.prepare(request)
        watcher = Watcher(request)
        for change in self.history:
            if change.version > begin and _concerns(change, request.path):
                watcher.queue.put_nowait(_line(change))
        self.watchers.append(watcher)
        try:
            while (words := await watcher.queue.get()) is not None:
                if not watcher.silent:
                    await response.write(words)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.watchers.remove(watcher)
        return response


def _line(change: Change) -> bytes:
    return json.dumps({"type": change.type, "object": change.object}).encode() + b"\n"


def _concerns(change: Change, path: str) -> bool:
    return _covers(path, change.collection, change.object["metadata"]["namespace"])


def _covers(path: str, collection: str, namespace: str) -> bool:
    base, plural = collection.rsplit("/", 1)
    return path in (collection, f"{base}/namespaces/{namespace}/{plural}")


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait for a state.

    Raises:
        TimeoutError: it did not come.
    """
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - the states are plain fields
            await asyncio.sleep(0.002)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a scenario, within a bound."""

    async def bounded() -> None:
        async with asyncio.timeout(20):
            await work

    asyncio.run(bounded())
