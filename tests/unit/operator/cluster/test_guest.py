"""A library's own requests carry our credentials, renewed as ours are."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from drivetrain_operator.cluster.guest import _named, guest_session


class Credentials:
    ssl = ssl.create_default_context()
    server_name: str | None = None

    def proxy(self) -> str | None:
        return None


@dataclass
class Transport:
    """Tokens, the first of them in use."""

    tokens: list[str | None]
    credentials: Credentials = field(default_factory=Credentials)
    replaced: list[str | None] = field(default_factory=list)

    async def token(self) -> str | None:
        return self.tokens[0]

    async def replace(self, used: str | None) -> bool:
        self.replaced.append(used)
        if len(self.tokens) > 1:
            self.tokens.pop(0)
            return True
        return False


def ask(transport: Transport, accepted: str | None) -> tuple[int, list[str | None], list[Any]]:
    """Status that the library sees, the credentials that the server saw, the calls counted."""
    seen: list[str | None] = []
    calls: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({}, status=200 if seen[-1] == accepted else 401)

    async def go() -> int:
        app = web.Application()
        app.router.add_get("/apis/drivetrain.dev/v1alpha1/trainingruns", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]

        def observe(verb: str, resource: str, code: str, seconds: float) -> None:
            assert seconds >= 0
            calls.append((verb, resource, code))

        session = guest_session(transport, observe)  # type: ignore[arg-type]  # has what is used
        url = f"http://127.0.0.1:{port}/apis/drivetrain.dev/v1alpha1/trainingruns?limit=1"
        try:
            async with session.get(url) as answer:
                return answer.status
        finally:
            await session.close()
            await runner.cleanup()

    return asyncio.run(go()), seen, calls


@pytest.mark.parametrize("token", ["Bearer a", None])
def test_requests_are_authorised_and_counted(token: str | None) -> None:
    status, seen, calls = ask(Transport([token]), token)
    assert (status, seen) == (200, [token])
    assert calls == [("list", "trainingruns", "200")]


def test_refused_credentials_are_replaced_once() -> None:
    transport = Transport(["Bearer old", "Bearer new"])
    status, seen, calls = ask(transport, "Bearer new")
    assert (status, seen) == (200, ["Bearer old", "Bearer new"])
    assert transport.replaced == ["Bearer old"]
    assert calls == [("list", "trainingruns", "200")]


def test_refused_credentials_without_others_are_the_librarys_to_handle() -> None:
    status, seen, calls = ask(Transport(["Bearer old"]), "Bearer new")
    assert (status, seen) == (401, ["Bearer old"])
    assert calls == [("list", "trainingruns", "401")]


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/api", ("get", "discovery")),
        ("/apis", ("get", "discovery")),
        ("/api/v1", ("get", "discovery")),
        ("/apis/drivetrain.dev/v1alpha1", ("get", "discovery")),
        ("/apis/drivetrain.dev/v1alpha1/trainingruns", ("list", "trainingruns")),
        ("/apis/drivetrain.dev/v1alpha1/namespaces/a/trainingruns", ("list", "trainingruns")),
        ("/api/v1/namespaces?watch=true", ("watch", "namespaces")),
    ],
)
def test_requests_are_named_as_in_rbac(path: str, named: tuple[str, str]) -> None:
    assert _named(URL(f"https://server{path}")) == named
