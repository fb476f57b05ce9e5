from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operator.cluster.fake_api_server import (
    FakeApiServer,
    Object,
    drop,
    raw,
    refuse,
    run,
    status,
    until,
)

from drivetrain_operator.cluster.reflector import Pace, Reflector
from drivetrain_operator.cluster.resources import CONFIG_MAPS, JOBS, Resource

QUICK = Pace(page_size=2, silence_s=20.0, first_delay_s=0.001, max_delay_s=0.02)


class Sink:
    """Objects as the sink was told, and every call."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], str] = {}
        self.puts: list[tuple[str, str]] = []
        self.deletes: list[str] = []
        self.sweeps: list[tuple[str | None, int]] = []
        self.rewinds = 0

    def put(self, _: Resource, obj: Object) -> None:
        meta = obj["metadata"]
        self.objects[meta["namespace"], meta["name"]] = meta["resourceVersion"]
        self.puts.append((meta["name"], meta["resourceVersion"]))

    def delete(self, _: Resource, obj: Object) -> None:
        self.objects.pop((obj["metadata"]["namespace"], obj["metadata"]["name"]), None)
        self.deletes.append(obj["metadata"]["name"])

    def sweep(
        self,
        _: Resource,
        namespace: str | None,
        seen: AbstractSet[tuple[str, str]],
        __: str,
    ) -> None:
        self.sweeps.append((namespace, len(seen)))
        for key in [k for k in self.objects if k not in seen and namespace in (None, k[0])]:
            del self.objects[key]

    def rewind(self) -> None:
        self.rewinds += 1


def config_map(name: str, namespace: str = "team", size: int = 0) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, "data": {"x": "y" * size}}


def wanted(server: FakeApiServer) -> dict[tuple[str, str], str]:
    return {key[1:]: o["metadata"]["resourceVersion"] for key, o in server.objects.items()}


@contextlib.asynccontextmanager
async def following(
    folder: Path, server: FakeApiServer, pace: Pace = QUICK, **options: Any
) -> AsyncIterator[tuple[Reflector, Sink]]:
    sink = Sink()
    async with await server.connect(folder) as cluster:
        reflector = Reflector(cluster, CONFIG_MAPS, sink, pace=pace, **options)
        task = asyncio.create_task(reflector.run())
        try:
            yield reflector, sink
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def lists(server: FakeApiServer) -> int:
    return sum("watch" not in r.query and "continue" not in r.query for r in server.requests)


def test_lists_in_chunks_then_follows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            for i in range(5):
                server.put(CONFIG_MAPS, config_map(f"c{i}"))
            async with following(tmp_path, server, label_selector="a=b", field_selector="c=d") as (
                reflector,
                sink,
            ):
                assert not reflector.synced.is_set()
                await reflector.synced.wait()
                assert sink.objects == wanted(server)
                assert len(server.requests) >= 3
                assert sink.sweeps == [(None, 5)]
                await until(lambda: server.watchers)
                server.put(CONFIG_MAPS, config_map("c1"))
                server.put(CONFIG_MAPS, config_map("new"))
                server.delete(CONFIG_MAPS, "team", "c2")
                await until(lambda: sink.objects == wanted(server))
                assert sink.deletes == ["c2"]
            for request in server.requests:
                assert request.path == "/api/v1/configmaps"
                assert request.query["labelSelector"] == "a=b"
                assert request.query["fieldSelector"] == "c=d"
            watch = server.requests[-1].query
            assert (watch["watch"], watch["allowWatchBookmarks"]) == ("true", "true")
            assert 300 <= int(watch["timeoutSeconds"]) <= 600

    run(scenario())


def test_an_empty_collection_is_synced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server, following(tmp_path, server) as (reflector, sink):
            await reflector.synced.wait()
            assert sink.sweeps == [(None, 0)]

    run(scenario())


def test_several_namespaces_are_followed_apart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            for namespace in ("a", "b", "c"):
                server.put(CONFIG_MAPS, config_map("x", namespace))
            async with following(tmp_path, server, namespaces=("a", "b")) as (reflector, sink):
                await reflector.synced.wait()
                assert set(sink.objects) == {("a", "x"), ("b", "x")}
                assert sorted(sink.sweeps) == [("a", 1), ("b", 1)]
                await until(lambda: len(server.watchers) == 2)
                server.put(CONFIG_MAPS, config_map("y", "b"))
                server.put(CONFIG_MAPS, config_map("y", "c"))
                server.delete(CONFIG_MAPS, "a", "x")
                await until(lambda: set(sink.objects) == {("b", "x"), ("b", "y")})

    run(scenario())


BREAKS = {
    "the server ends it": FakeApiServer.end_watches,
    "the connection is reset": FakeApiServer.cut_watches,
    "history is gone": lambda s: (s.compact(), s.end_watches()),
    "an ERROR event with 410": lambda s: s.say(
        json.dumps({"type": "ERROR", "object": status(410, "Expired")}).encode() + b"\n"
    ),
    "an ERROR event with 500": lambda s: s.say(
        json.dumps({"type": "ERROR", "object": status(500, "InternalError")}).encode() + b"\n"
    ),
    "garbage": lambda s: s.say(b"<html>\n"),
    "half an event, then the end": lambda s: (s.say(b'{"type": "ADD'), s.end_watches()),
    "an event of an unknown type": lambda s: s.say(b'{"type": "SHOUTED", "object": {}}\n'),
    "an event without an object": lambda s: s.say(b'{"type": "ADDED"}\n'),
    "an event that is no object": lambda s: s.say(b"[1]\n"),
    "an event without a version": lambda s: s.say(b'{"type": "ADDED", "object": {}}\n'),
    "bad UTF-8": lambda s: s.say(b'{"type": "\xff"}\n'),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_nothing_is_missed_while_a_watch_is_down(tmp_path: Path, broken: str) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            for name in ("kept", "changed", "gone"):
                server.put(CONFIG_MAPS, config_map(name))
            async with following(tmp_path, server) as (reflector, sink):
                await until(lambda: server.watchers)
                BREAKS[broken](server)
                server.put(CONFIG_MAPS, config_map("changed"))
                server.put(CONFIG_MAPS, config_map("new"))
                server.delete(CONFIG_MAPS, "team", "gone")
                await until(lambda: server.watchers and sink.objects == wanted(server))
                await until(lambda: not reflector.trouble)
                server.put(CONFIG_MAPS, config_map("later"))
                await until(lambda: sink.objects == wanted(server))

    run(scenario())


@pytest.mark.parametrize("end", [FakeApiServer.end_watches, FakeApiServer.cut_watches])
def test_a_watch_is_taken_up_where_it_was_without_a_list(tmp_path: Path, end: Any) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            server.put(CONFIG_MAPS, config_map("a"))
            async with following(tmp_path, server) as (_, sink):
                await until(lambda: server.watchers)
                server.put(CONFIG_MAPS, config_map("b"))
                reached = str(server.version)
                await until(lambda: len(sink.objects) == 2)
                end(server)
                await until(lambda: server.requests[-1].query.get("resourceVersion") == reached)
                assert lists(server) == 1

    run(scenario())


def test_a_silent_watch_is_dead(tmp_path: Path) -> None:
    async def scenario() -> None:
        pace = Pace(silence_s=0.2, first_delay_s=0.001, max_delay_s=0.01)
        async with FakeApiServer() as server, following(tmp_path, server, pace) as (_, sink):
            await until(lambda: server.watchers)
            server.silence_watches()
            server.put(CONFIG_MAPS, config_map("unheard"))
            await until(lambda: sink.objects == wanted(server))

    run(scenario())


def test_a_bookmark_is_a_sign_of_life_and_moves_the_watch_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        now = [0.0]
        pace = Pace(first_delay_s=0.001, clock=lambda: now[0])
        async with FakeApiServer() as server, following(tmp_path, server, pace) as (reflector, _):
            await until(lambda: server.watchers)
            now[0] = 100.0
            assert reflector.last_alive == 0.0
            server.bookmark()
            await until(lambda: reflector.last_alive == 100.0)
            reached = str(server.version)
            server.end_watches()
            await until(lambda: server.requests[-1].query["resourceVersion"] == reached)
            assert lists(server) == 1

    run(scenario())


def test_of_several_namespaces_the_stalest_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        now = [0.0]
        pace = Pace(first_delay_s=0.001, clock=lambda: now[0])
        async with (
            FakeApiServer() as server,
            following(tmp_path, server, pace, namespaces=("a", "b")) as (reflector, sink),
        ):
            await until(lambda: len(server.watchers) == 2)
            for namespace in ("a", "b"):  # an open watch has shown something
                server.put(CONFIG_MAPS, config_map("first", namespace))
            await until(lambda: sink.objects == wanted(server))
            now[0] = 50.0
            server.put(CONFIG_MAPS, config_map("x", "a"))
            await until(lambda: max(s.alive_at for s in reflector._scopes) == 50.0)
            assert reflector.last_alive == 0.0

    run(scenario())


def test_an_expired_page_begins_the_list_anew_and_sweeps_nothing_by_halves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            for i in range(5):
                server.put(CONFIG_MAPS, config_map(f"c{i}"))
            server.expired_pages = True
            async with following(tmp_path, server) as (reflector, sink):
                await reflector.synced.wait()
                assert sink.sweeps == [(None, 5)]
                assert sink.objects == wanted(server)
                assert lists(server) == 2

    run(scenario())


def test_what_changes_between_pages_is_told_by_the_watch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            for i in range(4):
                server.put(CONFIG_MAPS, config_map(f"c{i}"))

            def change() -> None:
                server.between_pages = lambda: None
                server.put(CONFIG_MAPS, config_map("c0"))
                server.put(CONFIG_MAPS, config_map("zz"))
                server.delete(CONFIG_MAPS, "team", "c1")

            server.between_pages = change
            async with following(tmp_path, server) as (_, sink):
                await until(lambda: sink.objects == wanted(server))
                assert sink.deletes == ["c1"]

    run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        drop,
        raw(b"not json"),
        raw(b"[]"),
        raw(b'{"metadata": {}, "items": []}'),
        raw(b'{"metadata": {"resourceVersion": "1"}, "items": [1]}'),
        raw(b'{"metadata": {"resourceVersion": "1"}, "items": {}}'),
        raw(b'{"metadata": {"resourceVersion": "1"}}'),
        raw(b"bad gateway", 502),
        refuse(403, "Forbidden"),
        refuse(404, "NotFound"),
        refuse(410, "Expired"),
        refuse(429, "TooManyRequests"),
        refuse(500, "InternalError"),
        refuse(503, "ServiceUnavailable"),
    ],
)
def test_a_list_that_fails_is_tried_again(tmp_path: Path, answer: Any) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            server.put(CONFIG_MAPS, config_map("a"))
            server.lists.extend([answer] * 3)
            async with following(tmp_path, server) as (reflector, sink):
                await reflector.synced.wait()
                assert sink.objects == wanted(server)
                await until(lambda: not reflector.trouble)

    run(scenario())


def test_trouble_names_resource_namespace_and_the_servers_words(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            server.lists.extend([refuse(403, "Forbidden", "no rights on configmaps")] * 10**4)
            async with following(tmp_path, server, namespaces=("a",)) as (reflector, _):
                await until(lambda: reflector.trouble)
                assert reflector.trouble == (
                    "configmaps in a: 403 Forbidden: no rights on configmaps"
                )
                assert not reflector.synced.is_set()

    run(scenario())


def test_watches_that_end_at_once_are_failures_and_lead_to_a_list(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            server.watches.extend([raw(b"")] * 3)
            async with following(tmp_path, server) as (reflector, _):
                await until(lambda: "ended at once" in reflector.trouble)
                await until(lambda: server.watchers)
                assert lists(server) == 2

    run(scenario())


def test_watches_that_are_never_let_in_lead_to_a_list(tmp_path: Path) -> None:
    """As a real server does where a watch begins at a version it has yet to reach."""

    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    async def scenario() -> None:
        pace = Pace(silence_s=0.05, first_delay_s=0.001)
        async with FakeApiServer() as server:
            server.watches.extend([hang] * 3)
            async with following(tmp_path, server, pace):
                await until(lambda: lists(server) == 2)

    run(scenario())


def test_refused_connections_do_not_lead_to_a_list(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            server.put(CONFIG_MAPS, config_map("a"))
            server.watches.extend([drop] * 8)
            async with following(tmp_path, server):
                await until(lambda: server.watchers)
            assert lists(server) == 1
            assert len(server.requests) == 10

    run(scenario())


def test_an_object_of_several_megabytes_passes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server, following(tmp_path, server) as (_, sink):
            await until(lambda: server.watchers)
            server.put(CONFIG_MAPS, config_map("large", size=3 * 2**20))
            server.put(CONFIG_MAPS, config_map("small"))
            await until(lambda: sink.objects == wanted(server))
            assert [name for name, _ in sink.puts] == ["large", "small"]
            assert lists(server) == 1

    run(scenario())


def test_a_cluster_restored_from_a_backup_rewinds_the_sink(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server:
            server.version = 5000
            server.put(CONFIG_MAPS, config_map("a"))
            async with following(tmp_path, server) as (_, sink):
                await until(lambda: server.watchers)
                server.version = 200
                server.objects.clear()
                server.history.clear()
                server.put(CONFIG_MAPS, config_map("b"))
                server.watches.append(refuse(410, "Expired"))
                server.cut_watches()
                await until(lambda: sink.objects == wanted(server))
                assert sink.rewinds == 1
                await until(lambda: server.watchers)
                server.compact()
                server.end_watches()
                await until(lambda: lists(server) == 3)
                await until(lambda: server.watchers)
                assert sink.rewinds == 1

    run(scenario())


def test_waits_grow_are_bounded_spread_and_heed_the_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeApiServer() as server, await server.connect(tmp_path) as cluster:
            reflector = Reflector(
                cluster, JOBS, Sink(), pace=Pace(first_delay_s=1.0, max_delay_s=30.0)
            )
            for failures, longest in ((1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (5000, 30.0)):
                waits = [reflector._delay(failures, None) for _ in range(200)]
                assert longest / 2 <= min(waits) < max(waits) <= longest
                assert max(waits) - min(waits) > longest / 4
            assert reflector._delay(1, 12.0) == 12.0
            assert reflector._delay(6, 1.0) >= 15.0
            assert reflector._delay(1, 86_400.0) == 30.0, "a proxy's page may ask for a day"

    run(scenario())


OPERATIONS = st.sampled_from(
    [
        *("put", "put", "put", "delete", "cut", "end", "compact"),
        *("silence", "garbage", "bookmark", "refuse", "wait"),
    ]
)


def act(server: FakeApiServer, operation: str, name: str) -> None:
    if operation == "put":
        server.put(CONFIG_MAPS, config_map(name))
    elif operation == "delete" and (CONFIG_MAPS.path(None), "team", name) in server.objects:
        server.delete(CONFIG_MAPS, "team", name)
    elif operation == "compact":
        server.compact()
        server.end_watches()
    elif operation == "refuse":
        server.lists.append(refuse(503))
        server.watches.append(refuse(503))
    elif operation in HAPPENINGS:
        HAPPENINGS[operation](server)


HAPPENINGS: dict[str, Callable[[FakeApiServer], object]] = {
    "cut": FakeApiServer.cut_watches,
    "end": FakeApiServer.end_watches,
    "silence": FakeApiServer.silence_watches,
    "garbage": lambda server: server.say(b"}{\n"),
    "bookmark": FakeApiServer.bookmark,
}


@pytest.fixture(scope="module", autouse=True)
def deep_stack() -> None:
    """As any `Cluster` sets it: hypothesis objects where that happens within a test of its own."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 12_500))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(OPERATIONS, st.integers(0, 4)), max_size=25))
def test_whatever_happens_the_sink_ends_like_the_server(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int]]
) -> None:
    async def scenario() -> None:
        pace = Pace(page_size=2, silence_s=0.1, first_delay_s=0.001, max_delay_s=0.005)
        async with FakeApiServer() as server:
            folder = tmp_path_factory.mktemp("reflector")
            async with following(folder, server, pace) as (_, sink):
                for operation, number in operations:
                    if operation == "wait":
                        await asyncio.sleep(0.003)  # lets the reflector get some way
                    else:
                        act(server, operation, f"c{number}")
                await until(lambda: sink.objects == wanted(server))

    run(scenario())
