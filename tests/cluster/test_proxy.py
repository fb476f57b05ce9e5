"""The proxy: it passes everything on, counts, and each of its faults is what its name says."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator

import pytest
from tests.support.kubernetes.api import Api, Object, RefusedError, wait_for
from tests.support.kubernetes.calls import EVERY_WRITE, Call, Selector, Verb, calls
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.faults import Delay, Fault, Moment, Refuse
from tests.support.kubernetes.proxy import Proxy


@pytest.fixture
def client(proxy: Proxy, control_plane: ControlPlane) -> Iterator[Api]:
    client = Api(proxy.url, control_plane.token, control_plane.authority)
    yield client
    client.close()


class Watcher:
    """A client that watches ConfigMaps, in a thread."""

    def __init__(self, client: Api, namespace: str) -> None:
        self.events: list[Object] = []
        self.ended = threading.Event()
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/configmaps?watch=1&resourceVersion=0"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for line in self._client.lines(self._path):
                self.events.append(json.loads(line))
        except (OSError, http.client.HTTPException):
            pass
        finally:
            self.ended.set()

    def names(self) -> list[str]:
        return [event["object"]["metadata"]["name"] for event in self.events]

    def wait_for(self, name: str) -> None:
        wait_for(lambda: name in self.names(), f"event of {name}", 10)

    def join(self) -> None:
        self._thread.join(10)


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


# -- passing on --------------------------------------------------------------------------------


def test_everything_passes_and_is_counted(client: Api, proxy: Proxy, namespace: str) -> None:
    client.create(config_map("a", key="1"), namespace=namespace)
    client.apply(config_map("a", key="2"), namespace=namespace)
    client.patch("v1", "ConfigMap", "a", {"data": {"key": "3"}}, namespace)
    assert client.get("v1", "ConfigMap", "a", namespace)["data"] == {"key": "3"}
    client.create(config_map("b"), namespace=namespace, dryRun="All")
    client.objects("v1", "ConfigMap", namespace, labelSelector="a in (b, c)")
    client.delete("v1", "ConfigMap", "a", namespace)
    assert client.ask("GET", "/readyz").code == 200
    assert client.find("v1", "ConfigMap", "missing", namespace) is None

    assert [(call.verb, call.resource, call.name, call.code) for call in proxy.calls()] == [
        (Verb.CREATE, "configmaps", "a", 201),
        (Verb.APPLY, "configmaps", "a", 200),
        (Verb.PATCH, "configmaps", "a", 200),
        (Verb.GET, "configmaps", "a", 200),
        (Verb.CREATE, "configmaps", "b", 201),
        (Verb.LIST, "configmaps", None, 200),
        (Verb.DELETE, "configmaps", "a", 200),
        (Verb.OTHER, "/readyz", None, 200),
        (Verb.GET, "configmaps", "missing", 404),
    ]
    assert proxy.count(EVERY_WRITE) == 4
    assert proxy.count(calls("configmaps", Verb.CREATE, namespace=namespace)) == 2
    assert json.loads(proxy.calls(calls("*", Verb.PATCH))[0].body) == {"data": {"key": "3"}}


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/namespaces/a", (Verb.GET, "namespaces", None, "a")),
        ("PUT", "/api/v1/namespaces/a/finalize", (Verb.UPDATE, "namespaces/finalize", None, "a")),
        ("GET", "/api/v1/nodes", (Verb.LIST, "nodes", None, None)),
        ("GET", "/apis/batch/v1/jobs", (Verb.LIST, "jobs", None, None)),
        (
            "DELETE",
            "/apis/batch/v1/namespaces/a/jobs",
            (Verb.DELETE_COLLECTION, "jobs", "a", None),
        ),
        (
            "PATCH",
            "/apis/drivetrain.dev/v1alpha1/namespaces/a/trainingruns/b/status",
            (Verb.PATCH, "trainingruns/status", "a", "b"),
        ),
        ("GET", "/apis", (Verb.OTHER, "/apis", None, None)),
    ],
)
def test_what_a_path_means(
    method: str, path: str, expected: tuple[Verb, str, str | None, str | None]
) -> None:
    call = Call.parse(method, path, {})

    assert (call.verb, call.resource, call.namespace, call.name) == expected


# -- faults of one call ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refuse", "reason"),
    [
        (Refuse(409), "Conflict"),
        (Refuse(409, reason="AlreadyExists"), "AlreadyExists"),
        (Refuse(429, retry_after_s=1), "TooManyRequests"),
        (Refuse(500), "InternalError"),
        (Refuse(503), "ServiceUnavailable"),
    ],
)
def test_a_refused_call_never_reaches_the_server(
    *, client: Api, proxy: Proxy, api: Api, namespace: str, refuse: Refuse, reason: str
) -> None:
    with proxy.inject(calls("configmaps", Verb.CREATE), refuse, times=1) as injection:
        with pytest.raises(RefusedError) as refused:
            client.create(config_map("a"), namespace=namespace)
        assert api.find("v1", "ConfigMap", "a", namespace) is None
        client.create(config_map("a"), namespace=namespace)  # once only

    assert refused.value.answer.code == refuse.code
    assert refused.value.answer.body["reason"] == reason
    assert injection.hits == 1
    assert [call.code for call in proxy.calls()] == [refuse.code, 201]


def test_calls_may_pass_before_a_fault(client: Api, proxy: Proxy, namespace: str) -> None:
    with proxy.inject(EVERY_WRITE, Refuse(500), skip=2, times=1):
        answers = [
            client.ask("POST", f"/api/v1/namespaces/{namespace}/configmaps", config_map(name)).code
            for name in "abcd"
        ]

    assert answers == [201, 201, 500, 201]


@pytest.mark.parametrize(("fault", "acts"), [(Fault.DROP, False), (Fault.LOSE_ANSWER, True)])
def test_a_dropped_call_has_no_answer(
    *, client: Api, proxy: Proxy, api: Api, namespace: str, fault: Fault, acts: bool
) -> None:
    with (
        proxy.inject(EVERY_WRITE, fault),
        pytest.raises((ConnectionError, http.client.HTTPException)),
    ):
        client.create(config_map("a"), namespace=namespace)

    assert (api.find("v1", "ConfigMap", "a", namespace) is not None) == acts


def test_a_hung_call_times_out_for_the_client(
    client: Api, proxy: Proxy, api: Api, namespace: str
) -> None:
    with proxy.inject(EVERY_WRITE, Fault.HANG) as hung:
        with pytest.raises(TimeoutError):
            client.create(config_map("a"), namespace=namespace, timeout_s=0.2)
        hung.wait()
    assert api.find("v1", "ConfigMap", "a", namespace) is None


def test_a_delayed_call_succeeds_later(client: Api, proxy: Proxy, namespace: str) -> None:
    begun = time.monotonic()
    with proxy.inject(EVERY_WRITE, Delay(0.3)):
        client.create(config_map("a"), namespace=namespace)

    assert time.monotonic() - begun >= 0.3


def test_an_outage_ends(client: Api, proxy: Proxy, namespace: str) -> None:
    watcher = Watcher(client, namespace)
    wait_for(lambda: proxy.open_watches, "watch")
    with proxy.outage():
        assert watcher.ended.wait(10)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            client.objects("v1", "ConfigMap", namespace)
    client.objects("v1", "ConfigMap", namespace)
    watcher.join()


# -- watches -----------------------------------------------------------------------------------


def test_a_watch_passes_events_as_they_come(
    client: Api, proxy: Proxy, api: Api, namespace: str
) -> None:
    watcher = Watcher(client, namespace)
    for name in ("a", "b"):
        api.create(config_map(name), namespace=namespace)
        watcher.wait_for(name)

    assert [call.resource for call in proxy.open_watches] == ["configmaps"]
    assert proxy.cut_watches() == 1
    assert watcher.ended.wait(10)
    wait_for(lambda: not proxy.open_watches, "end of the watch")
    watcher.join()


def test_a_silenced_watch_stays_open_and_tells_nothing(
    client: Api, proxy: Proxy, api: Api, namespace: str
) -> None:
    watcher = Watcher(client, namespace)
    api.create(config_map("a"), namespace=namespace)
    watcher.wait_for("a")
    assert proxy.silence_watches(calls("configmaps")) == 1
    api.create(config_map("b"), namespace=namespace)
    other = Watcher(client, namespace)
    other.wait_for("b")

    assert "b" not in watcher.names()
    assert not watcher.ended.is_set()
    proxy.cut_watches()
    assert watcher.ended.wait(10)
    assert other.ended.wait(10)


def test_a_watch_may_be_silent_from_its_start(client: Api, proxy: Proxy, namespace: str) -> None:
    with proxy.inject(calls(None, Verb.WATCH), Fault.SILENCE):
        watcher = Watcher(client, namespace)
        wait_for(lambda: proxy.open_watches, "watch")
    client.create(config_map("a"), namespace=namespace)
    other = Watcher(client, namespace)
    other.wait_for("a")

    assert watcher.events == []
    proxy.cut_watches()
    watcher.join()
    other.join()


def test_an_expired_watch_says_410(client: Api, proxy: Proxy, namespace: str) -> None:
    watcher = Watcher(client, namespace)
    wait_for(lambda: proxy.open_watches, "watch")
    assert proxy.expire_watches() == 1
    assert watcher.ended.wait(10)

    assert (watcher.events[-1]["type"], watcher.events[-1]["object"]["code"]) == ("ERROR", 410)


# -- hooks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("moment", "there"), [(Moment.BEFORE, False), (Moment.AFTER, True)])
def test_a_hook_runs_at_the_nth_call_while_it_waits(
    *, client: Api, proxy: Proxy, api: Api, namespace: str, moment: Moment, there: bool
) -> None:
    seen: list[bool] = []

    def look(_: Call) -> None:
        seen.append(api.find("v1", "ConfigMap", "b", namespace) is not None)

    hook = proxy.on_call(EVERY_WRITE, look, number=2, moment=moment)
    for name in "abc":
        client.create(config_map(name), namespace=namespace)
        assert hook.done.is_set() == (name != "a")

    assert seen == [there]


def test_a_client_may_be_gone_while_its_hook_runs(
    client: Api, proxy: Proxy, api: Api, namespace: str
) -> None:
    release = threading.Event()
    hook = proxy.on_call(EVERY_WRITE, lambda _: release.wait(10))
    with pytest.raises(TimeoutError):
        client.create(config_map("a"), namespace=namespace, timeout_s=0.2)
    release.set()

    assert hook.done.wait(10)
    assert api.find("v1", "ConfigMap", "a", namespace) is not None
    assert [call.code for call in proxy.calls(Selector(writes=True))] == [201]
