from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.unit.operator.cluster.fake_api_server import (
    TOKEN,
    FakeApiServer,
    drop,
    raw,
    refuse,
    run,
    until,
)

from drivetrain_operator.cluster.client import (
    Cluster,
    ContentType,
    Method,
    WatchEvent,
    WatchType,
)
from drivetrain_operator.cluster.errors import (
    AlreadyExistsError,
    ApiError,
    ExpiredError,
    ForbiddenError,
    UnavailableError,
)
from drivetrain_operator.cluster.resources import CONFIG_MAPS, JOBS, PODS, TRAINING_RUNS


async def hang(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


async def half(request: web.Request) -> web.StreamResponse:
    """The connection breaks within the answer."""
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b'{"a"')
    return await drop(request)


def test_importing_the_package_stays_light() -> None:
    code = (
        "import sys, drivetrain_operator, drivetrain_operator.cluster.client,"
        " drivetrain_operator.cluster.store, drivetrain_operator.cluster.watching;"
        "heavy = {'kubernetes', 'kopf', 'torch', 'numpy'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_request_as_it_is_on_the_wire(tmp_path: Path) -> None:
    async def scenario() -> None:
        calls: list[tuple[str, str, str]] = []

        def observe(verb: str, resource: str, code: str, seconds: float) -> None:
            assert 0 <= seconds < 5
            calls.append((verb, resource, code))

        async with (
            FakeApiServer() as server,
            await server.connect(tmp_path, observer=observe) as cluster,
        ):
            assert (cluster.namespace, cluster.host) == ("team", server.url)
            server.lists.append(raw(b'{"kind": "TrainingRun"}', 201))
            answer = await cluster.request(
                Method.PATCH,
                TRAINING_RUNS,
                namespace="a",
                name="r",
                subresource="status",
                params={"fieldManager": "me & you", "force": "true"},
                body={"status": {"phase": "Running"}},
                content_type=ContentType.APPLY_PATCH,
            )
            assert answer == {"kind": "TrainingRun"}
            (request,) = server.requests
            assert (request.method, request.path) == (
                "PATCH",
                "/apis/drivetrain.dev/v1alpha1/namespaces/a/trainingruns/r/status",
            )
            assert dict(request.query) == {"fieldManager": "me & you", "force": "true"}
            assert request.headers["Content-Type"] == "application/apply-patch+yaml"
            assert request.headers["Authorization"] == f"Bearer {TOKEN}"
            assert json.loads(server.bodies[0]) == {"status": {"phase": "Running"}}

            await cluster.request(Method.GET, JOBS, namespace=None)
            assert server.requests[-1].headers.get("Content-Type") is None
            server.lists.append(refuse(409, "AlreadyExists"))
            with pytest.raises(AlreadyExistsError):
                await cluster.request(Method.POST, JOBS, namespace="a", body={})
            server.lists.append(raw(b"{}"))
            await cluster.request(Method.GET, JOBS, namespace="a", name="j")
            server.lists.append(raw(b"{}"))
            await cluster.request(Method.DELETE, JOBS, namespace="a", name="j")
            server.lists.append(drop)
            with pytest.raises(UnavailableError):
                await cluster.request(Method.POST, JOBS, namespace="a", body={})
        assert calls == [
            ("patch", "trainingruns/status", "201"),
            ("list", "jobs", "200"),
            ("create", "jobs", "409"),
            ("get", "jobs", "200"),
            ("delete", "jobs", "200"),
            ("create", "jobs", "error"),
        ]

    run(scenario())


BROKEN: list[tuple[Callable[..., Any], str, int]] = [
    (drop, "Unreachable", 0),
    (half, "Unreachable", 0),
    (hang, "Timeout", 0),
    (raw(b"not json"), "Unreachable", 0),
    (raw(b"[]"), "Unreachable", 0),
    (raw(b"moved", 302), "", 302),
    (refuse(500, "InternalError"), "InternalError", 500),
]


@pytest.mark.parametrize(("answer", "reason", "code"), BROKEN)
def test_whatever_breaks_is_an_api_error(
    tmp_path: Path, answer: Any, reason: str, code: int
) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server, await server.connect(tmp_path) as cluster:
            server.lists.append(answer)
            with pytest.raises(ApiError) as caught:
                await cluster.request(Method.POST, JOBS, namespace="a", body={}, timeout_s=0.3)
            assert (caught.value.reason, caught.value.status) == (reason, code)
            assert len(server.requests) == 1, "a write is never sent twice"

    run(scenario())


def test_a_refused_connection_is_an_api_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            cluster = await server.connect(tmp_path)
        async with cluster:
            with pytest.raises(UnavailableError, match=r"GET /apis/batch/v1/jobs: "):
                await cluster.request(Method.GET, JOBS, namespace=None)

    run(scenario())


async def collect(cluster: Cluster, **options: Any) -> list[WatchEvent]:
    return [event async for event in cluster.watch(CONFIG_MAPS, namespace=None, **options)]


def test_a_watch_yields_events_and_bookmarks_until_it_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server, await server.connect(tmp_path) as cluster:
            lines = [{"type": kind, "object": {"metadata": {"name": kind}}} for kind in WatchType]
            server.watches.append(raw("\n".join(map(json.dumps, lines)).encode()))
            events = await collect(cluster, params={"labelSelector": "a"}, timeout_s=12.4)
            assert [event.type for event in events] == list(WatchType)
            assert events[0].object == {"metadata": {"name": "ADDED"}}
            assert dict(server.requests[0].query) == {
                "labelSelector": "a",
                "watch": "true",
                "allowWatchBookmarks": "true",
                "timeoutSeconds": "12",
            }

    run(scenario())


def test_an_error_event_is_raised(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server, await server.connect(tmp_path) as cluster:
            server.compact()
            with pytest.raises(ExpiredError):
                await collect(cluster, params={"resourceVersion": "1"})

    run(scenario())


def test_silence_ends_a_watch_and_a_dripping_server_cannot_keep_it(tmp_path: Path) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while True:
                await response.write(b" ")
                await asyncio.sleep(0.01)
        return response

    async def scenario() -> None:
        async with FakeApiServer() as server, await server.connect(tmp_path) as cluster:
            for answer, timeout_s, silence_s in ((hang, 60.0, 0.1), (drip, 0.1, 0.2)):
                server.watches.append(answer)
                with pytest.raises(UnavailableError) as caught:
                    await collect(cluster, timeout_s=timeout_s, silence_s=silence_s)
                assert caught.value.reason == "Timeout"

    run(scenario())


def test_an_event_beyond_the_bound_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain_operator.cluster.client.EVENT_LIMIT", 1000)

    async def scenario() -> None:
        async with FakeApiServer() as server, await server.connect(tmp_path) as cluster:
            server.watches.append(raw(b"x" * 1001))
            with pytest.raises(UnavailableError, match="a line of more than 1000 bytes"):
                await collect(cluster)

    run(scenario())


def test_an_object_as_deep_as_a_server_lets_in_can_be_read(tmp_path: Path) -> None:
    deep = b'{"a":' * 9_990 + b"1" + b"}" * 9_990

    async def scenario() -> None:
        async with FakeApiServer() as server, await server.connect(tmp_path) as cluster:
            server.lists.append(raw(b'{"items": [' + deep + b"]}"))
            assert len((await cluster.request(Method.GET, JOBS, namespace=None))["items"]) == 1
            server.watches.append(raw(b'{"type": "ADDED", "object": ' + deep + b"}"))
            assert [event.type for event in await collect(cluster)] == [WatchType.ADDED]
            server.lists.append(raw(b"[" * 200_000))
            with pytest.raises(UnavailableError):
                await cluster.request(Method.GET, JOBS, namespace=None)

    run(scenario())


def test_a_watch_that_is_left_early_gives_its_connection_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server, await server.connect(tmp_path) as cluster:
            server.put(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "team"}})
            events = cluster.watch(CONFIG_MAPS, namespace="team", params={"resourceVersion": "1"})
            async with contextlib.aclosing(events):
                assert (await anext(events)).object["metadata"]["name"] == "a"
                assert len(server.watchers) == 1
            await until(lambda: not server.watchers)

    run(scenario())


def test_log_lines(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server, await server.connect(tmp_path) as cluster:
            server.lists.append(raw("one\ntwo é\nbad ".encode() + b"\xff\nlast"))
            found = [
                line
                async for line in cluster.lines(
                    PODS, namespace="a", name="p", params={"follow": "true"}
                )
            ]
            assert found == ["one", "two é", "bad �", "last"]
            assert server.requests[0].path == "/api/v1/namespaces/a/pods/p/log"
            assert dict(server.requests[0].query) == {"follow": "true"}
            server.lists.append(refuse(400, "BadRequest", "container is waiting to start"))
            with pytest.raises(ApiError, match="waiting to start"):
                [line async for line in cluster.lines(PODS, namespace="a", name="p")]

    run(scenario())


def test_many_calls_at_once_are_not_held_up_by_watches(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server, await server.connect(tmp_path) as cluster:
            watches = [
                asyncio.create_task(collect(cluster, params={"resourceVersion": "100"}))
                for _ in range(120)
            ]
            await until(lambda: len(server.watchers) == 120)
            await cluster.request(Method.GET, JOBS, namespace=None, timeout_s=5)
            server.end_watches()
            await asyncio.gather(*watches)

    run(scenario())


def test_a_renewed_token_is_read_when_the_old_one_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        token = tmp_path / "token"
        token.write_text(TOKEN + "\n")
        async with FakeApiServer() as server:
            path = server.kubeconfig(tmp_path, user=f"{{tokenFile: {token}}}")
            async with await Cluster.connect(kubeconfig=path) as cluster:
                await cluster.request(Method.GET, JOBS, namespace=None)
                server.tokens = {"token-2"}
                token.write_text("token-2\n")
                answers = [cluster.request(Method.GET, JOBS, namespace=None) for _ in range(20)]
                await asyncio.gather(*answers)
                assert len(server.requests) <= 1 + 20 + 20
                server.watches.append(raw(b""))
                await collect(cluster)
                server.tokens = {"token-3"}
                with pytest.raises(ForbiddenError, match="who are you"):
                    await cluster.request(Method.GET, JOBS, namespace=None)

    run(scenario())
