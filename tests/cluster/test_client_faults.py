"""What the operator's client makes of each fault between it and a real API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.kubernetes.api import Api, Object
from tests.support.kubernetes.calls import EVERY_WATCH, Verb, calls
from tests.support.kubernetes.faults import Action, Delay, Fault, Refuse
from tests.support.kubernetes.proxy import Proxy

from drivetrain_operator.cluster.client import Cluster, Method, WatchEvent
from drivetrain_operator.cluster.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)
from drivetrain_operator.cluster.resources import CONFIG_MAPS

CREATES = calls("configmaps", Verb.CREATE)
BODY: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


def create(kubeconfig: Path, namespace: str, timeout_s: float = 15.0) -> None:
    async def work() -> None:
        async with await Cluster.connect(kubeconfig=kubeconfig) as cluster:
            await cluster.request(
                Method.POST,
                CONFIG_MAPS,
                namespace=namespace,
                body=BODY,
                timeout_s=timeout_s,
            )

    asyncio.run(work())


@pytest.mark.parametrize(
    ("action", "error", "status", "made"),
    [
        (Refuse(401), ForbiddenError, 401, False),
        (Refuse(403), ForbiddenError, 403, False),
        (Refuse(404), NotFoundError, 404, False),
        (Refuse(409), ConflictError, 409, False),
        (Refuse(409, reason="AlreadyExists"), AlreadyExistsError, 409, False),
        (Refuse(410), ExpiredError, 410, False),
        (Refuse(422), InvalidError, 422, False),
        (Refuse(429, retry_after_s=7), ThrottledError, 429, False),
        (Refuse(500), UnavailableError, 500, False),
        (Refuse(503), UnavailableError, 503, False),
        (Refuse(504), UnavailableError, 504, False),
        (Fault.DROP, UnavailableError, 0, False),
        (Fault.HANG, UnavailableError, 0, False),
        (Fault.LOSE_ANSWER, UnavailableError, 0, True),
    ],
    ids=lambda value: str(value) if isinstance(value, Refuse | Fault) else "",
)
def test_a_fault_is_an_error_of_its_kind(
    *,
    api: Api,
    namespace: str,
    proxy: Proxy,
    tmp_path: Path,
    action: Action,
    error: type[ApiError],
    status: int,
    made: bool,
) -> None:
    kubeconfig = proxy.kubeconfig(tmp_path / "through-proxy")
    with proxy.inject(CREATES, action) as injection, pytest.raises(error) as raised:
        create(kubeconfig, namespace, timeout_s=2.0 if action is Fault.HANG else 15.0)

    # a write is not tried again behind the caller's back, but once with a token read anew
    assert injection.hits == (2 if status == 401 else 1)
    assert raised.value.status == status
    assert raised.value.retry_after == (7 if status == 429 else None)
    assert (api.find("v1", "ConfigMap", "a", namespace) is not None) == made


def test_what_is_slow_and_within_its_time_succeeds(
    api: Api, namespace: str, proxy: Proxy, tmp_path: Path
) -> None:
    with proxy.inject(CREATES, Delay(0.3)):
        create(proxy.kubeconfig(tmp_path / "through-proxy"), namespace)

    assert api.find("v1", "ConfigMap", "a", namespace) is not None


def expire(proxy: Proxy) -> None:
    assert proxy.expire_watches() == 1


def cut(proxy: Proxy) -> None:
    assert proxy.cut_watches() == 1


def silence(proxy: Proxy) -> None:
    assert proxy.silence_watches() == 1


@pytest.mark.parametrize(
    ("break_it", "error"),
    [(expire, ExpiredError), (cut, UnavailableError), (silence, UnavailableError)],
)
def test_a_watch_that_breaks_says_how(
    *,
    api: Api,
    namespace: str,
    proxy: Proxy,
    tmp_path: Path,
    break_it: Callable[[Proxy], None],
    error: type[ApiError],
) -> None:
    seen: list[WatchEvent] = []
    kubeconfig = proxy.kubeconfig(tmp_path / "through-proxy")

    async def work() -> None:
        async with await Cluster.connect(kubeconfig=kubeconfig) as cluster:
            events = cluster.watch(CONFIG_MAPS, namespace=namespace, silence_s=1.0)
            async with contextlib.aclosing(events), asyncio.timeout(20):
                async for event in events:
                    if event.object["metadata"].get("name") == "a":
                        seen.append(event)
                        break_it(proxy)

    api.create(BODY, namespace=namespace)
    with pytest.raises(error):
        asyncio.run(work())

    assert len(seen) == 1
    assert proxy.count(EVERY_WATCH) == 1
