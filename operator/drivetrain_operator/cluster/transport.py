"""HTTP to one API server, with credentials that are kept fresh."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_operator.cluster.credentials import Credentials

CONNECT_TIMEOUT_S: Final = 10.0
_FAREWELL_S: Final = 0.05
"""For the other side to say goodbye: a connection that broke off ends its TLS by itself."""
_UNBOUNDED: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)


@dataclass(frozen=True)
class Call:
    """One request as it goes out."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    payload: bytes | None = None
    content_type: str | None = None


class Transport:
    """Connections to one API server, for one event loop."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self._refreshing = asyncio.Lock()
        proxy = credentials.proxy()
        self._fixed: dict[str, Any] = {"allow_redirects": False}
        if proxy is not None:
            self._fixed["proxy"] = proxy
        if credentials.server_name is not None:
            self._fixed["server_hostname"] = credentials.server_name
        self._session = aiohttp.ClientSession(
            # Watches hold connections; how many requests run at once is the callers' choice.
            connector=aiohttp.TCPConnector(limit=0, ssl=credentials.ssl, keepalive_timeout=30),
            headers={"Accept": "application/json", "User-Agent": "drivetrain"},
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**18,
        )

    async def close(self) -> None:
        """Close every connection; calls in flight fail."""
        await self._session.close()
        if self.credentials.host.startswith("https:"):
            await asyncio.sleep(_FAREWELL_S)

    async def send(
        self, call: Call, limits: aiohttp.ClientTimeout = _UNBOUNDED
    ) -> aiohttp.ClientResponse:
        """The beginning of the answer; credentials that are refused are loaded again once.

        Args:
            call: What to send.
            limits: Time for it; without them the caller bounds the whole.
        """
        url = URL(self.credentials.host + call.path, encoded=True)
        if call.params:
            url = url.with_query(call.params)
        used = await self.token()
        response = await self._once(call, url, limits)
        if response.status == HTTPStatus.UNAUTHORIZED and await self.replace(used):
            await response.read()  # the connection serves again
            response = await self._once(call, url, limits)
        return response

    async def _once(
        self, call: Call, url: URL, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = {}
        token = self.credentials.authorization()
        if token is not None:
            headers["Authorization"] = token
        if call.content_type is not None:
            headers["Content-Type"] = call.content_type
        return await self._session.request(
            call.method, url, data=call.payload, headers=headers, timeout=limits, **self._fixed
        )

    async def token(self) -> str | None:
        """The ``Authorization`` header, fresh; None without one."""
        if self.credentials.due(time.monotonic()):
            await self._refresh()
        return self.credentials.authorization()

    async def _refresh(self) -> None:
        async with self._refreshing:
            now = time.monotonic()
            if self.credentials.due(now):
                await self.credentials.refresh(now)

    async def replace(self, used: str | None) -> bool:
        """Whether there are other credentials than those that were refused."""
        async with self._refreshing:
            if self.credentials.authorization() != used:
                return True  # another request has loaded them meanwhile
            return await self.credentials.refresh(time.monotonic(), refused=True)
