"""Lists, watches and errors of a real API server, as they are and through a proxy that breaks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.conftest import DEFINITION
from tests.support.kubernetes.api import Api, Object
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.proxy import Proxy
from tests.unit.operator.cluster.fake_api_server import until

from drivetrain_api import labels
from drivetrain_operator.cluster.client import Cluster, ContentType, Method, WatchType
from drivetrain_operator.cluster.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from drivetrain_operator.cluster.keys import RunKey
from drivetrain_operator.cluster.reflector import Pace, Reflector
from drivetrain_operator.cluster.resources import CONFIG_MAPS, JOBS, PODS, TRAINING_RUNS, Resource
from drivetrain_operator.cluster.store import Store
from drivetrain_operator.cluster.watching import child_reflectors

QUICK = Pace(page_size=4, silence_s=20.0, first_delay_s=0.05, max_delay_s=0.5)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(90):
            await work

    asyncio.run(bounded())


def config_map(name: str, **data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {labels.RUN: "walk"}},
        "data": data,
    }


class Versions:
    """A sink that keeps the version of each object."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.lists = 0

    def put(self, _: Resource, obj: Any) -> None:
        self.found[obj["metadata"]["name"]] = obj["metadata"]["resourceVersion"]

    def delete(self, _: Resource, obj: Any) -> None:
        self.found.pop(obj["metadata"]["name"], None)

    def sweep(self, _: Resource, __: str | None, seen: Any, ___: str) -> None:
        self.lists += 1
        for name in set(self.found) - {key[1] for key in seen}:
            del self.found[name]

    def rewind(self) -> None:
        raise AssertionError("no backup was restored")


@contextlib.asynccontextmanager
async def following(
    kubeconfig: Path, namespace: str, pace: Pace = QUICK
) -> AsyncIterator[tuple[Reflector, Versions]]:
    sink = Versions()
    async with await Cluster.connect(kubeconfig=kubeconfig) as cluster:
        reflector = Reflector(
            cluster,
            CONFIG_MAPS,
            sink,
            namespaces=(namespace,),
            label_selector=labels.RUN,
            pace=pace,
        )
        task = asyncio.create_task(reflector.run())
        try:
            yield reflector, sink
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def there(api: Api, namespace: str) -> dict[str, str]:
    found = api.objects("v1", "ConfigMap", namespace, labelSelector=labels.RUN)
    return {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in found}


def change_all(api: Api, namespace: str) -> None:
    """One object more, one fewer, one changed."""
    api.create(config_map("new"), namespace=namespace)
    api.delete("v1", "ConfigMap", "c0", namespace)
    api.patch("v1", "ConfigMap", "c1", {"data": {"changed": "yes"}}, namespace)


def test_a_list_in_chunks_then_a_watch(api: Api, namespace: str, kubeconfig: Path) -> None:
    for number in range(10):
        api.create(config_map(f"c{number}"), namespace=namespace)
    api.create({**config_map("x"), "metadata": {"name": "not-ours"}}, namespace=namespace)

    async def scenario() -> None:
        async with following(kubeconfig, namespace) as (reflector, sink):
            await reflector.synced.wait()
            assert sink.found == there(api, namespace)
            assert len(sink.found) == 10
            change_all(api, namespace)
            expected = there(api, namespace)
            await until(lambda: sink.found == expected)
            label = {"metadata": {"labels": {labels.RUN: None}}}
            api.patch("v1", "ConfigMap", "c5", label, namespace)
            await until(lambda: "c5" not in sink.found)
            large = config_map("large", filling="é\n" * 330_000)
            api.create(large, namespace=namespace)
            await until(lambda: "large" in sink.found)
            assert sink.lists == 1

    run(scenario())


LOSSES: dict[str, Callable[[Proxy], object]] = {
    "cut": Proxy.cut_watches,
    "expired": Proxy.expire_watches,
    "silent": Proxy.silence_watches,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_watch_loses_no_change(
    api: Api, namespace: str, proxy: Proxy, tmp_path: Path, loss: str
) -> None:
    for number in range(6):
        api.create(config_map(f"c{number}"), namespace=namespace)

    async def scenario() -> None:
        pace = Pace(page_size=4, silence_s=1.0, first_delay_s=0.05)
        path = proxy.kubeconfig(tmp_path / "through-proxy", namespace=namespace)
        async with following(path, namespace, pace) as (_, sink):
            await until(lambda: LOSSES[loss](proxy))
            change_all(api, namespace)
            expected = there(api, namespace)
            await until(lambda: sink.found == expected)
            assert (sink.lists > 1) == (loss == "expired")

    run(scenario())


def test_an_outage_is_survived(api: Api, namespace: str, proxy: Proxy, tmp_path: Path) -> None:
    api.create(config_map("c0"), namespace=namespace)
    api.create(config_map("c1"), namespace=namespace)

    async def scenario() -> None:
        path = proxy.kubeconfig(tmp_path / "through-proxy", namespace=namespace)
        async with following(path, namespace) as (reflector, sink):
            await reflector.synced.wait()
            with proxy.outage():
                await until(lambda: reflector.trouble)
                change_all(api, namespace)
            expected = there(api, namespace)
            await until(lambda: sink.found == expected and not reflector.trouble)

    run(scenario())


def test_a_watch_from_a_version_to_come_is_not_answered(kubeconfig: Path) -> None:
    """As after a restore from a backup: only a list helps."""

    async def scenario() -> None:
        async with await Cluster.connect(kubeconfig=kubeconfig) as cluster:
            future = {"resourceVersion": str(10**9)}
            events = cluster.watch(CONFIG_MAPS, namespace=None, params=future, silence_s=3.0)
            with pytest.raises(UnavailableError, match="no answer in time"):
                await anext(events)

    run(scenario())


def test_the_server_ends_a_watch_when_asked(kubeconfig: Path, namespace: str) -> None:
    async def scenario() -> None:
        async with await Cluster.connect(kubeconfig=kubeconfig) as cluster:
            listed = await cluster.request(Method.GET, JOBS, namespace=namespace)
            version = {"resourceVersion": listed["metadata"]["resourceVersion"]}
            events = cluster.watch(JOBS, namespace=namespace, params=version, timeout_s=1.0)
            assert {event.type async for event in events} <= {WatchType.BOOKMARK}

    run(scenario())


def test_errors_as_the_server_tells_them(api: Api, kubeconfig: Path, namespace: str) -> None:
    made = api.create(config_map("taken"), namespace=namespace)

    async def scenario() -> None:
        async with await Cluster.connect(kubeconfig=kubeconfig) as cluster:

            async def fails(method: Method, resource: Resource, **options: Any) -> ApiError:
                with pytest.raises(ApiError) as caught:
                    await cluster.request(method, resource, namespace=namespace, **options)
                return caught.value

            error = await fails(Method.GET, JOBS, name="missing")
            assert type(error) is NotFoundError
            error = await fails(Method.POST, CONFIG_MAPS, body=config_map("taken"))
            assert type(error) is AlreadyExistsError
            precondition = {"preconditions": {"uid": "another"}}
            error = await fails(Method.DELETE, CONFIG_MAPS, name="taken", body=precondition)
            assert type(error) is ConflictError
            stale = {"metadata": {"resourceVersion": "1"}, "data": {"a": "b"}}
            error = await fails(
                Method.PATCH,
                CONFIG_MAPS,
                name="taken",
                body=stale,
                content_type=ContentType.MERGE_PATCH,
            )
            assert type(error) is ConflictError
            bad = {"metadata": {"name": "x"}, "spec": {"algo": {"name": "none"}}}
            bad |= {"apiVersion": TRAINING_RUNS.api_version, "kind": TRAINING_RUNS.kind}
            error = await fails(Method.POST, TRAINING_RUNS, body=bad)
            assert type(error) is InvalidError
            assert "spec.algo.name" in {cause.field for cause in error.causes}
            assert (
                made["metadata"]["uid"]
                == (
                    await cluster.request(
                        Method.GET, CONFIG_MAPS, namespace=namespace, name="taken"
                    )
                )["metadata"]["uid"]
            )

    run(scenario())


def test_somebody_without_rights_is_told_so(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        path = control_plane.write_kubeconfig(tmp_path / "nobody", token="wrong")
        async with following(path, namespace) as (reflector, _):
            await until(lambda: "401 Unauthorized" in reflector.trouble)
            assert reflector.trouble.startswith(f"configmaps in {namespace}: ")
        async with await Cluster.connect(kubeconfig=path) as cluster:
            with pytest.raises(ForbiddenError):
                await cluster.request(Method.GET, PODS, namespace=namespace)

    run(scenario())


def test_the_store_knows_what_is_around_a_run(api: Api, namespace: str, kubeconfig: Path) -> None:
    api.create(
        {
            "apiVersion": TRAINING_RUNS.api_version,
            "kind": TRAINING_RUNS.kind,
            "metadata": {"name": "walk"},
            "spec": {"algo": {"name": "sac"}, "task": {"name": "half_cheetah"}},
        },
        namespace=namespace,
    )
    template = {
        "metadata": {"labels": {labels.RUN: "walk"}},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": "missing",
            "containers": [{"name": "trainer", "image": "none"}],
        },
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "walk-a1", "labels": {labels.RUN: "walk"}},
        "spec": {"template": template},
    }
    api.create(job, namespace=namespace)
    api.create(config_map("walk-progress"), namespace=namespace)
    key = RunKey(namespace, "walk")

    async def scenario() -> None:
        touched: set[RunKey] = set()
        store = Store(touched.add)
        async with await Cluster.connect(kubeconfig=kubeconfig) as cluster:
            runs = Reflector(cluster, TRAINING_RUNS, store, namespaces=(namespace,))
            around = child_reflectors(cluster, store, namespaces=(namespace,))
            tasks = [asyncio.create_task(r.run()) for r in (runs, *around)]
            for reflector in (runs, *around):
                await reflector.synced.wait()
            assert touched == {key}

            def seen() -> bool:
                observed = store.observed(key)
                assert observed is not None
                return bool(
                    observed.jobs
                    and observed.config_maps
                    and any("missing" in e.message for e in observed.job_events)
                )

            await until(seen)
            account = {"apiVersion": "v1", "kind": "ServiceAccount"}
            api.create(account | {"metadata": {"name": "missing"}}, namespace=namespace)
            await until(lambda: store.observed(key).pods, timeout_s=60.0)  # type: ignore[union-attr]
            api.delete("batch/v1", "Job", "walk-a1", namespace)
            await until(lambda: not store.observed(key).pods)  # type: ignore[union-attr]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(scenario())


def test_a_run_of_thousands_of_levels_hides_no_other(namespace: str, kubeconfig: Path) -> None:
    """The server lets 10,000 levels in, where unknown fields are kept."""
    spec: Object = {"algo": {"name": "sac"}, "task": {"name": "half_cheetah"}}
    kind = {"apiVersion": TRAINING_RUNS.api_version, "kind": TRAINING_RUNS.kind}

    async def scenario() -> None:
        store = Store()
        async with await Cluster.connect(kubeconfig=kubeconfig) as cluster:
            deep: Object = {}
            for _ in range(9_000):
                deep = {"a": deep}
            for name, more in (("deep", {"training": {"x": deep}}), ("plain", {})):
                body = kind | {"metadata": {"name": name}, "spec": spec | more}
                await cluster.request(Method.POST, TRAINING_RUNS, namespace=namespace, body=body)
            reflector = Reflector(cluster, TRAINING_RUNS, store, namespaces=(namespace,))
            task = asyncio.create_task(reflector.run())
            await reflector.synced.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            observed = store.observed(RunKey(namespace, "deep"))
            assert observed is not None
            assert [violation.path for violation in observed.run.refusals] == ["training.x"]
            assert RunKey(namespace, "plain") in store
            await cluster.request(Method.DELETE, TRAINING_RUNS, namespace=namespace, name="deep")

    run(scenario())


def test_a_restart_of_the_server_and_a_pause_of_etcd_are_survived(tmp_path: Path) -> None:
    definitions = [yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))]
    with ControlPlane(tmp_path, definitions=definitions, controllers=False) as plane:
        for number in range(3):
            plane.api.create(config_map(f"c{number}"), namespace="default")

        async def scenario() -> None:
            async with following(plane.kubeconfig, "default") as (reflector, sink):
                await reflector.synced.wait()
                await asyncio.to_thread(plane.api_server.restart)
                plane.api.close()  # its connection went with the server
                change_all(plane.api, "default")
                expected = there(plane.api, "default")
                await until(lambda: sink.found == expected, timeout_s=30.0)
                plane.etcd.pause()
                with pytest.raises(UnavailableError):
                    async with await Cluster.connect(kubeconfig=plane.kubeconfig) as cluster:
                        await cluster.request(
                            Method.POST,
                            CONFIG_MAPS,
                            namespace="default",
                            body=config_map("late"),
                            timeout_s=1.0,
                        )
                plane.etcd.resume()
                plane.api.create(config_map("later"), namespace="default")
                await until(lambda: "later" in sink.found, timeout_s=30.0)

        run(scenario())
