"""A proxy in front of an API server that counts calls and injects faults.

It speaks HTTPS with the server's own certificate, and passes tokens on. Upgraded connections
(``kubectl exec``, port-forward) are not for it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web
from tests.support.kubernetes.calls import EVERY_WATCH, EVERYTHING, Call, Selector, Verb
from tests.support.kubernetes.control_plane import HOST, ControlPlane
from tests.support.kubernetes.faults import (
    Action,
    Delay,
    Fault,
    Hook,
    Injection,
    Moment,
    Refuse,
)
from yarl import URL

_NOT_PASSED = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "te",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers between two neighbours; lengths are counted anew."""
_LIFT_POLL_S = 0.02
_ENDING_S = 0.1
"""For connections to end in: TLS takes some turns of the event loop to say goodbye."""
_BODY_LIMIT = 64 * 1024**2


class _DroppedError(Exception):
    """The client is to lose its connection."""


@dataclass(eq=False)
class _Record:
    """A call as far as it got."""

    call: Call

    def answered(self, code: int) -> None:
        self.call = replace(self.call, code=code)


@dataclass(eq=False)
class _Watch:
    """One watch that is open."""

    record: _Record
    request: web.Request
    silenced: bool = False
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    last_words: bytes = b""


class Proxy:
    """Between clients and the API server of `plane`; in a thread of its own.

    Args:
        plane: Its API server may be stopped and started meanwhile.
        keep_bodies: Whether the calls that `calls` gives hold what was sent.
    """

    def __init__(self, plane: ControlPlane, *, keep_bodies: bool = False) -> None:
        self._plane = plane
        self._keep_bodies = keep_bodies
        self._records: list[_Record] = []
        self._injections: list[Injection] = []
        self._hooks: list[Hook] = []
        self._watches: list[_Watch] = []
        self._open: dict[_Record, web.Request] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self.url = ""

    # -- life ------------------------------------------------------------------------------

    def start(self) -> Self:
        """Listen on a port of its own; `url` tells it."""
        self._thread.start()
        self._on_loop(self._listen()).result(30)
        return self

    def stop(self) -> None:
        """Drop every connection and end."""
        for injection in self._injections:
            injection.lift()
        self._on_loop(self._close()).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _on_loop(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _listen(self) -> None:
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            connector=aiohttp.TCPConnector(
                ssl=ssl.create_default_context(cafile=self._plane.authority), limit=0
            ),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        application = web.Application(client_max_size=_BODY_LIMIT)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        certificate = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate.load_cert_chain(self._plane.authority, self._plane.authority_key)
        await web.TCPSite(self._runner, HOST, 0, ssl_context=certificate).start()
        self.url = f"https://{HOST}:{self._runner.addresses[0][1]}"

    async def _close(self) -> None:
        self._abort(lambda _: True)
        await self._runner.cleanup()
        await self._session.close()
        await asyncio.sleep(_ENDING_S)

    # -- use -------------------------------------------------------------------------------

    def kubeconfig(
        self, path: Path, *, token: str | None = None, namespace: str = "default"
    ) -> Path:
        """Write a kubeconfig that leads through the proxy."""
        return self._plane.write_kubeconfig(path, url=self.url, token=token, namespace=namespace)

    def calls(self, selector: Selector = EVERYTHING) -> list[Call]:
        """Calls so far, answered or not, oldest first."""
        return [each.call for each in list(self._records) if selector.matches(each.call)]

    def count(self, selector: Selector = EVERYTHING) -> int:
        """How many they are."""
        return len(self.calls(selector))

    def forget(self) -> None:
        """Begin counting anew."""
        self._records.clear()

    def inject(
        self, selector: Selector, action: Action, *, times: int | None = None, skip: int = 0
    ) -> Injection:
        """Do `action` to matching calls; the latest injection that takes a call has it."""
        injection = Injection(selector, action, times, skip)
        self._injections.insert(0, injection)
        return injection

    def on_call(
        self,
        selector: Selector,
        callback: Callable[[Call], object],
        *,
        number: int = 1,
        moment: Moment = Moment.AFTER,
    ) -> Hook:
        """Call back at the `number`-th matching call from now on, while that call waits."""
        hook = Hook(selector, number, moment, callback)
        self._hooks.append(hook)
        return hook

    def silence_watches(self, selector: Selector = EVERY_WATCH) -> int:
        """Let open watches stay open and tell nothing more; gives how many they were."""
        chosen = self._chosen(selector)
        for watch in chosen:
            watch.silenced = True
        return len(chosen)

    def cut_watches(self, selector: Selector = EVERY_WATCH) -> int:
        """Drop the connections of open watches; gives how many they were."""
        chosen = {watch.record for watch in self._chosen(selector)}
        self._loop.call_soon_threadsafe(self._abort, chosen.__contains__)
        return len(chosen)

    def expire_watches(self, selector: Selector = EVERY_WATCH) -> int:
        """End open watches as the server does where history is gone: by an event with 410."""
        status = Refuse(410, message="too old resource version").status()
        event = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
        chosen = self._chosen(selector)
        for watch in chosen:
            watch.last_words = event
            self._loop.call_soon_threadsafe(watch.ending.set)
        return len(chosen)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Nobody is connected, nobody can connect."""
        with self.inject(EVERYTHING, Fault.DROP):
            self._loop.call_soon_threadsafe(self._abort, lambda _: True)
            yield

    @property
    def open_watches(self) -> list[Call]:
        """Watches that are open, the silenced ones included."""
        return [watch.record.call for watch in list(self._watches)]

    def _chosen(self, selector: Selector) -> list[_Watch]:
        return [watch for watch in list(self._watches) if selector.matches(watch.record.call)]

    def _abort(self, chosen: Callable[[_Record], bool]) -> None:
        for request in [each for record, each in self._open.items() if chosen(record)]:
            if request.transport is not None:
                request.transport.abort()

    # -- a call ----------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = Call.parse(
            request.method, request.path, request.query, request.headers.get("Content-Type", "")
        )
        if call.verb is Verb.CREATE and call.name is None:
            call = replace(call, name=_name_in(body))
        if self._keep_bodies:
            call = replace(call, body=body)
        record = _Record(call)
        self._records.append(record)
        self._open[record] = request
        try:
            return await self._serve(request, record, body)
        except (_DroppedError, aiohttp.ClientError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)
        finally:
            del self._open[record]

    async def _serve(
        self, request: web.Request, record: _Record, body: bytes
    ) -> web.StreamResponse:
        call = record.call
        injection = next((each for each in list(self._injections) if each.take(call)), None)
        action = None if injection is None else injection.action
        if isinstance(action, Refuse):
            record.answered(action.code)
            return _refusal(action)
        if injection is not None:
            await _hold(injection)
        await self._run_hooks(call, Moment.BEFORE)
        async with self._ask(request, body) as upstream:
            record.answered(upstream.status)
            if call.verb is Verb.WATCH and upstream.status == 200:
                watch = _Watch(record, request, silenced=action is Fault.SILENCE)
                return await self._watch(watch, upstream)
            content = await upstream.read()
            await self._run_hooks(record.call, Moment.AFTER)
            if action is Fault.LOSE_ANSWER:
                raise _DroppedError
            return web.Response(
                status=upstream.status, body=content, headers=_passed_on(upstream.headers)
            )

    def _ask(
        self, request: web.Request, body: bytes
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._session.request(
            request.method,
            URL(f"{self._plane.url}{request.raw_path}", encoded=True),
            data=body or None,
            headers=_passed_on(request.headers),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            allow_redirects=False,
        )

    async def _run_hooks(self, call: Call, moment: Moment) -> None:
        for hook in [hook for hook in list(self._hooks) if hook.due(call, moment)]:
            await asyncio.to_thread(hook.run, call)

    async def _watch(self, watch: _Watch, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(status=upstream.status, headers=_passed_on(upstream.headers))
        await response.prepare(watch.request)
        self._watches.append(watch)
        passing = asyncio.ensure_future(_pass_on(upstream, response, watch))
        ending = asyncio.ensure_future(watch.ending.wait())
        try:
            await asyncio.wait({passing, ending}, return_when=asyncio.FIRST_COMPLETED)
            if watch.last_words:
                await response.write(watch.last_words)
        finally:
            self._watches.remove(watch)
            for task in (passing, ending):
                task.cancel()
            await asyncio.gather(passing, ending, return_exceptions=True)
        return response


async def _hold(injection: Injection) -> None:
    """Wait, or lose the call, before the server hears of it."""
    if isinstance(injection.action, Delay):
        await asyncio.sleep(injection.action.seconds)
    if injection.action is Fault.HANG:
        while not injection.lifted:  # noqa: ASYNC110 - an injection knows no loop
            await asyncio.sleep(_LIFT_POLL_S)
    if injection.action in (Fault.DROP, Fault.HANG):
        raise _DroppedError


async def _pass_on(
    upstream: aiohttp.ClientResponse, response: web.StreamResponse, watch: _Watch
) -> None:
    """Until the server ends the watch, or the client is gone; a silenced one never ends."""
    async for chunk in upstream.content.iter_any():
        if not watch.silenced:
            await response.write(chunk)
    if watch.silenced:
        await watch.ending.wait()


def _name_in(body: bytes) -> str | None:
    """The name of an object that is to be created: it is in no path."""
    try:
        name = json.loads(body)["metadata"]["name"]
    except (ValueError, LookupError, TypeError):
        return None
    return str(name)


def _passed_on(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name.lower() not in _NOT_PASSED]


def _refusal(refuse: Refuse) -> web.Response:
    headers = {}
    if refuse.retry_after_s is not None:
        headers["Retry-After"] = str(refuse.retry_after_s)
    return web.json_response(refuse.status(), status=refuse.code, headers=headers)
