"""One connection to an API server: requests, watches and logs as plain JSON values.

The Kubernetes client loads the configuration; requests then go over aiohttp directly, for
its models cost more CPU than the rest of a request together.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp

from drivetrain_operator.cluster.account import Account, account_of
from drivetrain_operator.cluster.answers import event_of, object_of
from drivetrain_operator.cluster.credentials import Credentials
from drivetrain_operator.cluster.errors import (
    ApiError,
    UnavailableError,
    error_from_exception,
)
from drivetrain_operator.cluster.guest import guest_session
from drivetrain_operator.cluster.lines import LineTooLongError, split_lines
from drivetrain_operator.cluster.transport import CONNECT_TIMEOUT_S, Call, Transport
from drivetrain_operator.cluster.wire import (
    CallObserver,
    ContentType,
    Method,
    WatchEvent,
    WatchType,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from drivetrain_operator.cluster.resources import Resource

__all__ = ["CallObserver", "Cluster", "ContentType", "Method", "WatchEvent", "WatchType"]

EVENT_LIMIT: Final = 32 * 2**20
"""Bytes of one watch event: an object may have 3 MiB, and more once it is escaped."""
LOG_LINE_LIMIT: Final = 4 * 2**20
"""Bytes of one line of a pod's log."""
_RECURSION: Final = 12_500
"""An API server lets in objects of 10,000 levels: one of them, which anybody may make, must not
make a whole list unreadable. Half of what a stack of 8 MiB holds."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_BROKEN: Final = (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError)
"""What the transport raises, and what reading an answer does that is no JSON or too deep."""
_VERBS: Final = {
    Method.POST: "create",
    Method.PUT: "update",
    Method.PATCH: "patch",
    Method.DELETE: "delete",
}


def _ignore(verb: str, resource: str, code: str, seconds: float) -> None:
    """Count nothing."""


def _nothing() -> None:
    """Nobody waits for it."""


class Cluster:
    """An API server, for one event loop; close it, or use it as a context manager."""

    def __init__(self, credentials: Credentials, observer: CallObserver | None = None) -> None:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION))
        self._transport = Transport(credentials)
        self._observe = observer if observer is not None else _ignore

    @classmethod
    async def connect(
        cls,
        *,
        kubeconfig: Path | None = None,
        context: str | None = None,
        observer: CallObserver | None = None,
    ) -> Cluster:
        """The cluster that the settings point at; nothing is sent yet.

        Args:
            kubeconfig: This file alone. Otherwise ``$KUBECONFIG``, else the pod's service
                account, else ``~/.kube/config``.
            context: A context of the kubeconfig other than its current one.
            observer: Called after each request.

        Raises:
            ConnectionSettingsError: none of these is there, or it cannot be read.
        """
        credentials = await Credentials.load(
            kubeconfig=kubeconfig, context=context, now=time.monotonic()
        )
        return cls(credentials, observer)

    @property
    def namespace(self) -> str:
        """The context's namespace, or the pod's own."""
        return self._transport.credentials.namespace

    @property
    def account(self) -> Account | None:
        """The ServiceAccount that we act as; None where we are somebody else."""
        return account_of(self._transport.credentials.authorization())

    @property
    def host(self) -> str:
        """Address of the API server."""
        return self._transport.credentials.host

    def guest_session(self) -> aiohttp.ClientSession:
        """A session for a library that sends requests of its own; whoever takes it closes it."""
        return guest_session(self._transport, self._observe)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; calls in flight fail."""
        await self._transport.close()

    async def request(
        self,
        method: Method,
        resource: Resource,
        *,
        namespace: str | None,
        name: str | None = None,
        subresource: str | None = None,
        params: Mapping[str, str] = _NONE,
        body: object = None,
        content_type: ContentType = ContentType.JSON,
        timeout_s: float = 15.0,
    ) -> dict[str, Any]:
        """Send one request and read its answer.

        Nothing is tried twice, except that a refused token is read again once, and that aiohttp
        sends GET, PUT and DELETE again where a kept connection turns out to be closed.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            resource: What is asked for.
            namespace: None for all namespaces, and for what lives in none.
            name: The object; None for the collection.
            subresource: Such as ``status``.
            params: Query parameters.
            body: JSON values; None for no body.
            content_type: What the body is.
            timeout_s: Seconds for the whole call.

        Returns:
            The answer: an object, a list, or a ``Status``.

        Raises:
            ApiError: its subclass tells what failed.
        """
        path = resource.path(namespace, name, subresource)
        verb = _VERBS.get(method) or ("get" if name is not None else "list")
        call = Call(method.value, path, params)
        if body is not None:
            call = Call(method.value, path, params, json.dumps(body).encode(), content_type.value)
        began, code = time.monotonic(), "error"
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._transport.send(call)
                code = str(response.status)
                content = await response.read()
                return object_of(response, content)
        except ApiError:
            raise
        except _BROKEN as error:
            raise error_from_exception(error, f"{method} {path}") from error
        finally:
            self._observe(verb, _label(resource, subresource), code, time.monotonic() - began)

    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        params: Mapping[str, str] = _NONE,
        timeout_s: float = 300.0,
        silence_s: float = 70.0,
        opened: Callable[[], None] = _nothing,
    ) -> AsyncGenerator[WatchEvent]:
        """Events of a collection, bookmarks included, until the server ends the watch.

        To be closed when it is left early (`contextlib.aclosing`).

        Args:
            resource: What is watched.
            namespace: None for all namespaces.
            params: Query parameters; ``resourceVersion``, selectors.
            timeout_s: Seconds after which the server is asked to end the watch.
            silence_s: Seconds without a byte after which the connection counts as dead; a
                server sends a bookmark about once a minute.
            opened: Called once the server has let the watch in.

        Raises:
            ExpiredError: the resourceVersion is too old.
            ApiError: any other failure, silence and unreadable events included.
        """
        asked = {
            **params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(timeout_s))),
        }
        call = Call(Method.GET, resource.path(namespace), asked)
        # The total is for a server that drips bytes and never ends the watch.
        limits = aiohttp.ClientTimeout(
            total=timeout_s + silence_s, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_s
        )
        lines = self._stream(call, ("watch", resource.plural), limits, EVENT_LIMIT, opened)
        async with contextlib.aclosing(lines):
            async for line in lines:
                yield event_of(line, call.path)

    async def lines(
        self,
        resource: Resource,
        *,
        namespace: str,
        name: str,
        subresource: str = "log",
        params: Mapping[str, str] = _NONE,
    ) -> AsyncGenerator[str]:
        """Lines of a text that the server streams: a pod's log, followed for as long as it takes.

        To be closed when it is left early (`contextlib.aclosing`).

        Args:
            resource: What the object is.
            namespace: Its namespace.
            name: Its name.
            subresource: What is read of it.
            params: Query parameters, such as ``container``, ``follow``, ``tailLines``.

        Raises:
            ApiError: its subclass tells what failed.
        """
        call = Call(Method.GET, resource.path(namespace, name, subresource), params)
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        counted = ("get", _label(resource, subresource))
        found = self._stream(call, counted, limits, LOG_LINE_LIMIT)
        async with contextlib.aclosing(found):
            async for line in found:
                yield line.decode(errors="replace")

    async def _stream(
        self,
        call: Call,
        counted: tuple[str, str],
        limits: aiohttp.ClientTimeout,
        line_limit: int,
        opened: Callable[[], None] = _nothing,
    ) -> AsyncGenerator[bytes]:
        """Lines of an answer, each as soon as it is there; `counted` are verb and resource."""
        began, code = time.monotonic(), "error"
        response: aiohttp.ClientResponse | None = None
        wire: asyncio.BaseTransport | None = None
        doing = f"{counted[0]} {call.path}"
        try:
            try:
                response = await self._transport.send(call, limits)
                wire = response.connection.transport if response.connection is not None else None
                code = str(response.status)
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                    object_of(response, await response.read())
            finally:
                self._observe(*counted, code, time.monotonic() - began)
            opened()
            async for line in split_lines(response.content.iter_any(), limit=line_limit):
                yield line
            wire = None  # it is at its end, and serves the next request
        except LineTooLongError as error:
            raise UnavailableError(f"{doing}: {error}", reason="Unreadable") from error
        except _BROKEN as error:
            raise error_from_exception(error, doing) from error
        finally:
            if isinstance(wire, asyncio.WriteTransport):
                wire.abort()  # a polite end of TLS may outlive the event loop
            if response is not None:
                response.close()


def _label(resource: Resource, subresource: str | None) -> str:
    return resource.plural if subresource is None else f"{resource.plural}/{subresource}"
