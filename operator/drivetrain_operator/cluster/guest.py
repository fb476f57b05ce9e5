"""A session for a library that sends requests of its own: ours in address, trust and name.

Its credentials are the connection's, refreshed by it; so exec plugins, renewed tokens,
certificates and proxies work there as they do here.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
    from yarl import URL

    from drivetrain_operator.cluster.client import CallObserver
    from drivetrain_operator.cluster.transport import Transport


def guest_session(transport: Transport, observe: CallObserver) -> aiohttp.ClientSession:
    """A session whose requests are authorised and counted; whoever takes it closes it."""

    async def host(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        began, code = time.monotonic(), "error"
        try:
            used = await transport.token()
            response = await _authorised(transport, request, handler, used)
            if response.status == HTTPStatus.UNAUTHORIZED and await transport.replace(used):
                response.close()
                response = await _authorised(transport, request, handler, await transport.token())
            code = str(response.status)
            return response
        finally:
            observe(*_named(request.url), code, time.monotonic() - began)

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=transport.credentials.ssl),
        headers={"Accept": "application/json", "User-Agent": "drivetrain"},
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=transport.credentials.proxy(),
        middlewares=(host,),
    )


def _named(url: URL) -> tuple[str, str]:
    """RBAC's verb and resource of a read; what is served at all is asked for as well."""
    parts = url.path.strip("/").split("/")
    if len(parts) <= (2 if parts[0] == "api" else 3):
        return "get", "discovery"
    return "watch" if "watch" in url.query else "list", parts[-1]


async def _authorised(
    transport: Transport, request: ClientRequest, handler: ClientHandlerType, token: str | None
) -> ClientResponse:
    name = transport.credentials.server_name
    if name is not None:
        request.server_hostname = name
    if token is not None:
        request.headers["Authorization"] = token
    return await handler(request)
