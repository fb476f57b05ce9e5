"""The control plane itself: it serves, controllers act, each server can fail, nothing is left."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.kubernetes.api import Api, Object, RefusedError, wait_for
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.processes import Process, ProcessDiedError
from tests.support.kubernetes.proxy import Proxy

REPOSITORY = Path(__file__).parents[2]
ORPHANING = """
import sys, time
from pathlib import Path
from tests.support.kubernetes.processes import Process
process = Process("sleep", ["/bin/sleep", "600"], Path(sys.argv[1]))
process.start()
print(process.pid, flush=True)
time.sleep(600)
"""


def job(name: str) -> Object:
    container = {"name": "trainer", "image": "none"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def test_controllers_make_pods_and_collect_them(api: Api, namespace: str) -> None:
    wait_for(lambda: api.find("v1", "ServiceAccount", "default", namespace), "account")
    api.create(job("job"), namespace=namespace)
    wait_for(lambda: api.objects("v1", "Pod", namespace), "pod")
    api.delete("batch/v1", "Job", "job", namespace)

    wait_for(lambda: not api.objects("v1", "Pod", namespace), "end of the pod")


def test_an_owner_of_our_kind_takes_its_children_along(api: Api, namespace: str) -> None:
    run = api.create(
        {
            "apiVersion": "drivetrain.dev/v1alpha1",
            "kind": "TrainingRun",
            "metadata": {"name": "run"},
            "spec": {"algo": {"name": "sac"}, "task": {"name": "half_cheetah"}},
        },
        namespace=namespace,
    )
    owner = {key: run[key] for key in ("apiVersion", "kind")}
    owner |= {key: run["metadata"][key] for key in ("name", "uid")}
    child = {"apiVersion": "v1", "kind": "ConfigMap"}
    api.create(
        child | {"metadata": {"name": "child", "ownerReferences": [owner]}}, namespace=namespace
    )
    api.delete("drivetrain.dev/v1alpha1", "TrainingRun", "run", namespace)

    wait_for(lambda: api.find("v1", "ConfigMap", "child", namespace) is None, "end of the child")


def test_a_refusal_tells_field_and_message(api: Api, namespace: str) -> None:
    with pytest.raises(RefusedError, match="NoSuch") as refused:
        api.create(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
            | {"spec": {"type": "NoSuch", "ports": [{"port": 1}]}},
            namespace=namespace,
        )

    assert refused.value.answer.code == 422
    assert refused.value.answer.causes[0][0] == "spec.type"


def test_an_account_has_its_own_rights(control_plane: ControlPlane, namespace: str) -> None:
    api = control_plane.api
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "worker"}}
    api.create(account, namespace=namespace)
    token = control_plane.account_token(namespace, "worker")
    worker = Api(control_plane.url, token, control_plane.authority)
    answer = worker.ask("GET", f"/api/v1/namespaces/{namespace}/configmaps")
    worker.close()

    assert answer.code == 403
    assert f"system:serviceaccount:{namespace}:worker" in answer.message


@pytest.fixture(scope="module")
def breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of these tests' own: others share theirs."""
    with ControlPlane(tmp_path_factory.mktemp("breakable")) as plane:
        yield plane


def test_etcd_pauses_and_all_goes_on_afterwards(breakable: ControlPlane) -> None:
    api = breakable.api
    with breakable.etcd.paused(), pytest.raises(TimeoutError):
        api.create(job("paused"), namespace="default", timeout_s=0.5)
    api.apply(job("paused"), namespace="default")

    selector = "batch.kubernetes.io/job-name=paused"
    wait_for(lambda: api.objects("v1", "Pod", "default", labelSelector=selector), "pod of the Job")


def test_the_api_server_restarts_with_what_it_knew(breakable: ControlPlane) -> None:
    api = breakable.api
    with Proxy(breakable) as proxy:
        client = Api(proxy.url, breakable.token, breakable.authority)
        client.create(job("kept"), namespace="default")
        breakable.api_server.stop()
        try:
            with pytest.raises(ConnectionRefusedError):
                api.get("batch/v1", "Job", "kept", "default")
            with pytest.raises((ConnectionError, http.client.HTTPException)):
                client.get("batch/v1", "Job", "kept", "default")
        finally:
            breakable.api_server.start()
        seen = [each.get("batch/v1", "Job", "kept", "default") for each in (api, client)]
        client.close()

    assert seen[0]["metadata"]["uid"] == seen[1]["metadata"]["uid"]


def test_many_run_beside_each_other(control_plane: ControlPlane, tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "other", controllers=False) as other:
        assert other.url != control_plane.url
        assert other.api.find("v1", "Namespace", "kube-system") is not None
        with pytest.raises(RefusedError):
            other.api.objects("drivetrain.dev/v1alpha1", "TrainingRun")
        pids = [other.etcd.pid, other.api_server.pid]

    assert not (tmp_path / "other").exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_server_that_ends_tells_why(tmp_path: Path) -> None:
    process = Process("sh", ["/bin/sh", "-c", "echo no such thing; exit 7"], tmp_path / "log")
    process.start()
    wait_for(lambda: not process.running, "end")

    with pytest.raises(ProcessDiedError, match="ended with 7:\nno such thing"):
        process.check()


def test_nothing_outlives_tests_that_are_killed(tmp_path: Path) -> None:
    tests = subprocess.Popen(
        [sys.executable, "-c", ORPHANING, tmp_path / "log"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    with tests:
        assert tests.stdout is not None
        pid = int(tests.stdout.readline())
        assert _alive(pid)
        tests.send_signal(signal.SIGKILL)
        tests.wait(10)

    wait_for(lambda: not _alive(pid), "end of the server", 10)


def _alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
