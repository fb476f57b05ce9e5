from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from kubectl_api import Asked, FakeApi
from kubectl_objects import pod, training_run

from drivetrain_operator.kubectl import tensorboard as module

Call = Callable[..., Result]

KUBECTL = """#!{python}
import os, pathlib, signal, sys, time
folder = pathlib.Path({folder!r})
(folder / "arguments").write_text(" ".join(sys.argv[1:]))
behaviour = {behaviour!r}
if behaviour == "taken":
    print("unable to listen on any of the requested ports: [{{6006 6006}}]", flush=True)
    sys.exit(1)
if behaviour == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
(folder / "pid").write_text(str(os.getpid()))
print("Forwarding from 127.0.0.1:45678 -> 6006", flush=True)
if behaviour == "breaks":
    print("error: lost connection to pod", flush=True)
    sys.exit(1)
time.sleep(60)
"""
JOB = {
    "metadata": {"name": "walk-a2"},
    "spec": {
        "template": {
            "spec": {
                "securityContext": {"runAsNonRoot": True, "runAsUser": 4321},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "imagePullSecrets": [{"name": "registry"}],
                "containers": [
                    {"name": "sidecar", "image": "other:1"},
                    {"name": "trainer", "image": "lab/trainer:7", "imagePullPolicy": "Never"},
                ],
            }
        }
    },
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.01)


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A kubectl on the PATH that forwards nothing; the folder has what it was asked."""

    def make(behaviour: str) -> Path:
        program = tmp_path / "bin" / "kubectl"
        program.parent.mkdir()
        program.write_text(
            KUBECTL.format(python=sys.executable, folder=str(tmp_path), behaviour=behaviour)
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return tmp_path

    return make


@pytest.fixture(autouse=True)
def cluster(api: FakeApi) -> None:
    api.put("jobs", JOB)
    claim = {"metadata": {"name": "walk-storage"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    api.put("persistentvolumeclaims", claim)
    api.before = lambda asked: ready(api, asked)


def ready(api: FakeApi, asked: Asked) -> None:
    """The kubelet: a board's pod is ready at the second look."""
    if asked.plural == "pods" and "tensorboard" in asked.name and asked.method == "GET":
        board = api.objects["pods", "lab", asked.name]
        board["looks"] = board.get("looks", 0) + 1
        if board["looks"] > 1:
            board["status"] = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
            }


def board_pod(api: FakeApi) -> dict[str, Any]:
    (body,) = [body for method, _, _, body in api.writes() if method == "POST"]
    assert isinstance(body, dict)
    return body


def deleted(api: FakeApi) -> bool:
    boards = [obj for obj in api.held("pods") if "tensorboard" in obj["metadata"]["name"]]
    return not boards and any(method == "DELETE" for method, *_ in api.writes())


def test_the_pod_is_restricted_reads_the_runs_storage_and_ends_with_the_command(
    api: FakeApi, drivetrain: Call, kubectl: Callable[[str], Path]
) -> None:
    folder = kubectl("breaks")
    summary = {"status": "running", "runDirectory": "logs/fast_sac/hopper/x"}
    api.put("trainingruns", training_run(runSummary=summary))
    done = drivetrain("tensorboard", "walk")
    assert "TensorBoard of walk: http://127.0.0.1:45678/ (Ctrl-C ends it)" in done.stdout
    assert done.exit_code == 1
    assert "the port-forward ended: error: lost connection to pod" in done.stderr
    assert deleted(api)

    manifest = board_pod(api)
    name = manifest["metadata"]["name"]
    assert name.startswith("walk-tensorboard-")
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == "uid-walk"
    assert "drivetrain.dev/run-uid" not in manifest["metadata"]["labels"]
    spec = manifest["spec"]
    assert spec["securityContext"]["runAsUser"] == 4321
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["automountServiceAccountToken"] is False
    assert spec["activeDeadlineSeconds"] == 8 * 3600
    (container,) = spec["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("lab/trainer:7", "Never")
    logdir = container["command"][container["command"].index("--logdir") + 1]
    assert logdir == "/var/lib/drivetrain/logs/fast_sac/hopper/x"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    storage = spec["volumes"][0]["persistentVolumeClaim"]
    assert storage == {"claimName": "walk-storage", "readOnly": True}
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["node-0"]
    assert (folder / "arguments").read_text() == (
        f"port-forward --namespace lab --kubeconfig {api.kubeconfig} --address 127.0.0.1 "
        f"pod/{name} 6006:6006"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_takes_the_pod_away(
    api: FakeApi, kubectl: Callable[[str], Path], number: signal.Signals
) -> None:
    folder = kubectl("serves")
    command = "from drivetrain_operator.kubectl.main import main; main()"
    with subprocess.Popen(
        [
            *(sys.executable, "-c", command),
            *("tensorboard", "walk", "--port", "0", "--kubeconfig", str(api.kubeconfig)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "http://127.0.0.1:45678/" in process.stdout.readline()
        process.send_signal(number)
        assert process.wait(20) == 128 + number
    assert deleted(api)
    assert gone(int((folder / "pid").read_text()))
    assert (folder / "arguments").read_text().endswith(" :6006")


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_kubectl_that_ignores_its_end_is_killed(
    api: FakeApi,
    drivetrain: Call,
    kubectl: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = kubectl("stubborn")
    monkeypatch.setattr("drivetrain_operator.kubectl.port_forward._STOPPED_S", 0.1)

    def opened(url: str) -> None:
        raise OSError(url)

    monkeypatch.setattr(module.webbrowser, "open", opened)
    began = time.monotonic()
    assert isinstance(drivetrain("tensorboard", "walk", "--open").exception, OSError)
    assert time.monotonic() - began < 20
    assert gone(int((folder / "pid").read_text()))
    assert deleted(api)


def test_a_port_that_is_taken(
    api: FakeApi, drivetrain: Call, kubectl: Callable[[str], Path]
) -> None:
    kubectl("taken")
    done = drivetrain("tensorboard", "walk")
    assert done.exit_code == 1
    assert "unable to listen" in done.output
    assert "choose another port by --port, or 0 for any" in done.output
    assert deleted(api)


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ({"emptyDir": True}, "keeps its files in an emptyDir"),
        ({}, "keeps its files in an emptyDir"),
        ({"size": "1Gi"}, "has no storage yet: quota"),
    ],
)
def test_without_a_claim_there_is_nothing_to_read_and_why(
    api: FakeApi,
    drivetrain: Call,
    kubectl: Callable[[str], Path],
    storage: dict[str, Any],
    words: str,
) -> None:
    kubectl("serves")
    raw = training_run("bare", message="quota")
    del raw["status"]["storage"]
    raw["spec"]["storage"] = storage
    api.put("trainingruns", raw)
    done = drivetrain("tensorboard", "bare")
    assert done.exit_code == 1
    assert words in done.output
    assert not api.writes()


def test_without_a_job_an_image_must_be_named(
    api: FakeApi, drivetrain: Call, kubectl: Callable[[str], Path]
) -> None:
    kubectl("breaks")
    del api.objects["jobs", "lab", "walk-a2"]
    for index in (0, 1):
        del api.objects["pods", "lab", pod(index=index)["metadata"]["name"]]
    assert "by --image" in drivetrain("tensorboard", "walk").output
    drivetrain("tensorboard", "walk", "--image", "mine:1")
    spec = board_pod(api)["spec"]
    assert spec["containers"][0]["image"] == "mine:1"
    assert spec["securityContext"]["runAsUser"] == 1000
    assert "affinity" not in spec


@pytest.mark.parametrize(
    ("modes", "pinned"), [(["ReadWriteMany"], False), (["ReadWriteOnce"], True)]
)
def test_a_volume_of_one_node_decides_where_the_pod_is(
    api: FakeApi,
    drivetrain: Call,
    kubectl: Callable[[str], Path],
    modes: list[str],
    pinned: bool,
) -> None:
    kubectl("breaks")
    claim = {"metadata": {"name": "walk-storage"}, "spec": {"accessModes": modes}}
    api.put("persistentvolumeclaims", claim)
    drivetrain("tensorboard", "walk")
    assert ("affinity" in board_pod(api)["spec"]) is pinned


def test_a_volume_of_one_pod_cannot_be_read_beside_it(
    api: FakeApi, drivetrain: Call, kubectl: Callable[[str], Path]
) -> None:
    kubectl("serves")
    claim = {"metadata": {"name": "walk-storage"}, "spec": {"accessModes": ["ReadWriteOncePod"]}}
    api.put("persistentvolumeclaims", claim)
    done = drivetrain("tensorboard", "walk")
    assert "kubectl drivetrain suspend walk --wait" in done.output
    assert not api.writes()


def test_a_claim_that_is_gone(
    api: FakeApi, drivetrain: Call, kubectl: Callable[[str], Path]
) -> None:
    kubectl("serves")
    del api.objects["persistentvolumeclaims", "lab", "walk-storage"]
    done = drivetrain("tensorboard", "walk")
    assert "PersistentVolumeClaim walk-storage is gone" in done.output


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "message": "0/1 nodes are available",
                    }
                ],
            },
            "0/1 nodes are available",
        ),
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {
                        "name": "tensorboard",
                        "state": {"waiting": {"reason": "ErrImagePull", "message": "no such"}},
                    }
                ],
            },
            "ErrImagePull: no such",
        ),
        ({"phase": "Running"}, "TensorBoard starts"),
    ],
)
def test_what_it_waits_for_is_told_and_a_wait_ends(
    api: FakeApi,
    drivetrain: Call,
    kubectl: Callable[[str], Path],
    status: dict[str, Any],
    words: str,
) -> None:
    kubectl("serves")

    def stuck(asked: Asked) -> None:
        if "tensorboard" in asked.name and asked.method == "GET":
            api.objects["pods", "lab", asked.name]["status"] = status

    api.before = stuck
    done = drivetrain("tensorboard", "walk", "--timeout", "0s")
    assert done.exit_code == 1
    assert f"waiting: {words}" in done.output
    assert f"is not ready after 0s: {words}" in done.output
    assert deleted(api)


def test_an_image_without_tensorboard_says_so_by_its_log(
    api: FakeApi, drivetrain: Call, kubectl: Callable[[str], Path]
) -> None:
    kubectl("serves")

    def failed(asked: Asked) -> None:
        if "tensorboard" in asked.name and asked.method == "GET":
            api.objects["pods", "lab", asked.name]["status"] = {"phase": "Failed"}
            api.logs[asked.name] = ["No module named tensorboard"]

    api.before = failed
    done = drivetrain("tensorboard", "walk")
    assert "TensorBoard ended: Failed" in done.output
    assert "No module named tensorboard" in done.output
    assert deleted(api)


def test_a_pod_that_cannot_be_deleted_is_named(
    api: FakeApi, drivetrain: Call, kubectl: Callable[[str], Path]
) -> None:
    kubectl("breaks")
    api.answers["DELETE", "pods"] = (403, "Forbidden", "you cannot delete pods")
    done = drivetrain("tensorboard", "walk", "--lifetime", "1h")
    assert "could not be deleted: 403 Forbidden: you cannot delete pods" in done.output
    assert "kubectl delete pod walk-tensorboard-" in done.output
    assert "it ends by itself 1h after its start" in done.output


def test_no_kubectl(
    api: FakeApi, drivetrain: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "kubectl is not on the PATH" in drivetrain("tensorboard", "walk").output
    assert not api.requests
