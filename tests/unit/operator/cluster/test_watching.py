from __future__ import annotations

import asyncio
from pathlib import Path

from tests.unit.operator.cluster.fake_api_server import FakeApiServer, run

from drivetrain_api import labels
from drivetrain_operator.cluster.reflector import Pace
from drivetrain_operator.cluster.resources import CONFIG_MAPS
from drivetrain_operator.cluster.store import RunKey, Store
from drivetrain_operator.cluster.watching import child_reflectors


def test_children_are_asked_for_by_label_and_events_by_field(tmp_path: Path) -> None:
    async def scenario() -> None:
        touched: list[RunKey] = []
        store = Store(touched.append)
        async with FakeApiServer() as server, await server.connect(tmp_path) as cluster:
            marked = {"name": "m", "namespace": "a", "labels": {labels.RUN: "walk"}}
            server.put(CONFIG_MAPS, {"metadata": marked})
            around = child_reflectors(cluster, store, namespaces=("a",), pace=Pace(page_size=9))
            children, events = around[:-1], around[-1]
            assert {reflector._pace.watch_timeout_s for reflector in children} == {300.0}
            assert 2 * events._pace.watch_timeout_s < events._pace.silence_s, "ended, not silent"
            tasks = [asyncio.create_task(reflector.run()) for reflector in around]
            for reflector in around:
                await reflector.synced.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            lists = {r.path: dict(r.query) for r in server.requests if "watch" not in r.query}
        child = {"labelSelector": "drivetrain.dev/run", "limit": "9"}
        assert lists == {
            "/apis/batch/v1/namespaces/a/jobs": child,
            "/api/v1/namespaces/a/pods": child,
            "/api/v1/namespaces/a/configmaps": child,
            "/api/v1/namespaces/a/events": {
                "fieldSelector": "involvedObject.kind=Job,type=Warning",
                "limit": "9",
            },
        }
        assert touched == [RunKey("a", "walk")]

    run(scenario())
