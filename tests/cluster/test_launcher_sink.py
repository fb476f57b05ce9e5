"""The launcher's ConfigMap sink on a real API server, with the rights that a run's account has."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs
from tests.support.kubernetes.api import Api
from tests.support.kubernetes.calls import Selector
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.faults import Fault, Refuse
from tests.support.kubernetes.proxy import Proxy

from drivetrain_api.compose import parse_run
from drivetrain_api.digest import PROGRESS_LIMIT, Digest, decode, encode
from drivetrain_api.status import Progress
from drivetrain_api.trainingrun import TrainingRun
from drivetrain_operator.manifests.config import progress_config_map
from drivetrain_operator.manifests.names import account_name, progress_name
from drivetrain_operator.manifests.rbac import role, role_binding, service_account
from drivetrain_trainer.launcher.configmap import ConfigMapSink
from drivetrain_trainer.launcher.service_account import ProgressConfigMap, PublishError

pytestmark = pytest.mark.cluster


@pytest.fixture
def run(api: Api, namespace: str) -> TrainingRun:
    """A run that is there, with its account, its rights and its progress ConfigMap."""
    document = {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": "walk", "namespace": namespace},
        "spec": {"algo": {"name": "sac"}, "task": {"name": "half_cheetah"}},
    }
    metadata = api.create(document)["metadata"]
    document["metadata"] = {key: metadata[key] for key in ("name", "namespace", "uid")}
    made = parse_run(document)
    for manifest in (service_account(made), role(made), role_binding(made)):
        api.create(manifest)
    api.create(progress_config_map(made))
    return made


@pytest.fixture
def where(
    run: TrainingRun, control_plane: ControlPlane, tmp_path: Path
) -> Callable[..., ProgressConfigMap]:
    """The ConfigMap as a pod of the run sees it: its account mounted, the server by address."""

    def see(name: str | None = None, url: str | None = None) -> ProgressConfigMap:
        namespace, account = run.metadata.namespace, account_name(run.metadata.name)
        token = control_plane.account_token(namespace, account)
        (tmp_path / "token").write_text(token)
        (tmp_path / "namespace").write_text(namespace)
        (tmp_path / "ca.crt").write_bytes(control_plane.authority.read_bytes())
        address = urlsplit(url or control_plane.url)
        environ = {
            "KUBERNETES_SERVICE_HOST": str(address.hostname),
            "KUBERNETES_SERVICE_PORT": str(address.port),
            "DRIVETRAIN_SERVICE_ACCOUNT": str(tmp_path),
        }
        return ProgressConfigMap.of(name or progress_name(run.metadata.name), environ)

    return see


def report(env_steps: int, exit_code: int | None = None) -> Digest:
    return Digest(attempt=1, exit_code=exit_code, progress=Progress(env_steps=env_steps))


def told(api: Api, run: TrainingRun) -> Digest | None:
    found = api.get("v1", "ConfigMap", progress_name(run.metadata.name), run.metadata.namespace)
    return decode(found["data"]["progress"], PROGRESS_LIMIT)


def test_reports_arrive_and_touch_nothing_else(
    api: Api, run: TrainingRun, where: Callable[..., ProgressConfigMap]
) -> None:
    name, namespace = progress_name(run.metadata.name), run.metadata.namespace
    before = api.get("v1", "ConfigMap", name, namespace)
    sink = ConfigMapSink(where(), spacing_s=0.0)
    for env_steps in range(20):
        sink.publish(encode(report(env_steps), PROGRESS_LIMIT))
    last = report(20, exit_code=0)
    sink.publish(encode(last, PROGRESS_LIMIT))
    sink.finish(20)
    assert told(api, run) == last
    after = api.get("v1", "ConfigMap", name, namespace)
    for key in ("labels", "ownerReferences", "uid"):
        assert after["metadata"].get(key) == before["metadata"].get(key)
    managers = {entry["manager"] for entry in after["metadata"]["managedFields"]}
    assert "drivetrain-launcher" in managers


def test_what_the_server_refuses_is_explained(
    api: Api, run: TrainingRun, where: Callable[..., ProgressConfigMap]
) -> None:
    with pytest.raises(PublishError, match=r"403: .*it said: .*cannot patch"):
        where("another").patch("{}", 10)
    target = where()
    (target.account / "token").write_text("forged")
    with pytest.raises(PublishError, match="401: the account's token is not accepted"):
        target.patch("{}", 10)
    target = where()
    api.delete("v1", "ConfigMap", target.name, run.metadata.namespace)
    with pytest.raises(PublishError, match="404: it is gone: was the run deleted") as caught:
        target.patch("{}", 10)
    assert caught.value.hopeless


def test_the_last_report_outlasts_a_server_that_stumbles(
    api: Api, run: TrainingRun, where: Callable[..., ProgressConfigMap], proxy: Proxy
) -> None:
    last = report(99, exit_code=1)
    for fault in (Refuse(503), Fault.DROP, Refuse(429, retry_after_s=60), Fault.LOSE_ANSWER):
        proxy.inject(Selector(resource="configmaps"), fault, times=1)
    with capture_logs() as logs:
        sink = ConfigMapSink(where(url=proxy.url))
        sink.publish(encode(last, PROGRESS_LIMIT))
        began = time.monotonic()
        sink.finish(20)
    assert told(api, run) == last
    assert time.monotonic() - began < 20
    assert "503" in json.dumps(logs)
    assert proxy.count() == 5
