"""`kubectl drivetrain` and `kubectl get trun` on a real API server, and by the real kubectl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.support.kubernetes.api import Api, Object, RefusedError, wait_for
from tests.support.kubernetes.kubectl import Kubectl

from drivetrain_api import labels
from drivetrain_operator.kubectl.main import cli
from drivetrain_operator.kubectl.runs import Run
from drivetrain_operator.kubectl.tensorboard_pod import Placement, tensorboard_pod

DRIVETRAIN = "drivetrain.dev/v1alpha1"
NOW = datetime.now(UTC).replace(microsecond=0)
WORDS = "attempt 2: 2 of 2 pods running"


def ago(seconds: int) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


STATUS: dict[str, Any] = {
    "phase": "Running",
    "message": WORDS,
    "done": "42%",
    "attempt": 2,
    "ranks": 4,
    "restarts": 1,
    "attemptStartedAt": ago(650),
    "attemptRunningAt": ago(600),
    "storage": "walk-storage",
    "progress": {
        "iteration": 410,
        "envSteps": 420_000,
        "targetEnvSteps": 1_000_000,
        "percent": 42,
        "stepsPerSecond": "8123.45",
        "meanReward": "-12.5",
        "etaSeconds": 71,
    },
    "conditions": [
        {
            "type": "Running",
            "status": "True",
            "reason": "PodsRunning",
            "message": WORDS,
            "lastTransitionTime": ago(600),
        }
    ],
    "history": [
        {
            "attempt": 1,
            "startedAt": ago(4300),
            "endedAt": ago(700),
            "reason": "OOMKilled",
            "message": "pod walk-a1-0: OOMKilled, exit code 137",
            "exitCode": 137,
        }
    ],
    "artifacts": [
        {"name": "last_checkpoint", "uri": "logs/x", "sha256": "ab" * 32, "bytes": 5_500_000}
    ],
}


class Bench:
    """A namespace with one run in its second attempt, whose pods never ran."""

    def __init__(self, api: Api, namespace: str, kubeconfig: Path) -> None:
        self.api, self.namespace, self.kubeconfig = api, namespace, kubeconfig
        run = {
            "apiVersion": DRIVETRAIN,
            "kind": "TrainingRun",
            "metadata": {"name": "walk"},
            "spec": {
                "algo": {"name": "sac"},
                "task": {"name": "hopper"},
                "topology": {"nodes": 2, "ranksPerNode": 2},
                "storage": {"size": "1Gi"},
            },
        }
        self.uid = str(api.create(run, namespace=namespace)["metadata"]["uid"])
        self.set_status(**STATUS)

    def set_status(self, **fields: Any) -> None:
        """As the operator would."""
        path = (DRIVETRAIN, "TrainingRun", "walk", {"status": fields}, self.namespace)
        self.api.patch(*path, subresource="status")

    def run(self) -> Object:
        return self.api.get(DRIVETRAIN, "TrainingRun", "walk", self.namespace)

    def call(self, *words: str) -> Result:
        return CliRunner().invoke(
            cli, [*words, "--kubeconfig", str(self.kubeconfig)], env={"COLUMNS": "140"}
        )

    def pod(self, index: int) -> None:
        marks = {
            labels.RUN: "walk",
            labels.RUN_UID: self.uid,
            labels.ATTEMPT: "2",
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"walk-a2-{index}",
                "labels": marks,
                "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
            },
            "spec": {"containers": [{"name": "trainer", "image": "none"}]},
        }
        self.api.create(pod, namespace=self.namespace)


@pytest.fixture
def bench(api: Api, namespace: str, kubeconfig: Path) -> Bench:
    return Bench(api, namespace, kubeconfig)


def test_the_columns_read_well(bench: Bench) -> None:
    kubectl = Kubectl(bench.kubeconfig, bench.namespace)
    header, row = kubectl("get", "trun").splitlines()
    assert header.split() == [
        *("NAME", "PHASE", "ALGO", "TASK", "RANKS", "PROGRESS", "STEPS/S", "REWARD", "RESTARTS"),
        "AGE",
    ]
    assert row.split()[:-1] == [
        *("walk", "Running", "sac", "hopper", "4", "42%", "8123.45", "-12.5", "1"),
    ]
    wide_header, wide = kubectl("get", "tr", "-o", "wide").splitlines()
    assert wide_header.split()[10:] == ["ATTEMPT", "ENVSTEPS", "ETA(S)", "EVALUATED", "MESSAGE"]
    assert wide.rstrip().endswith(WORDS)


def test_a_run_in_full(bench: Bench) -> None:
    for index in (0, 1):
        bench.pod(index)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "walk.1"},
        "involvedObject": {
            "apiVersion": DRIVETRAIN,
            "kind": "TrainingRun",
            "name": "walk",
            "namespace": bench.namespace,
            "uid": bench.uid,
        },
        "type": "Normal",
        "reason": "PodsRunning",
        "message": WORDS,
        "lastTimestamp": ago(600),
        "count": 2,
    }
    bench.api.create(event, namespace=bench.namespace)
    done = bench.call("describe", "walk")
    assert done.exit_code == 0, done.output
    for words in (
        f"Name:      {bench.namespace}/walk",
        f"Phase:     Running: {WORDS}",
        "42%  420,000 of 1,000,000 steps, iteration 410",
        "1h   OOMKilled    137   yes       pod walk-a1-0: OOMKilled, exit code 137",
        "walk-a2-1   2-3     Unscheduled",
        "x2     Normal   PodsRunning",
        "last_checkpoint   5.2 MiB   abababababab   logs/x",
    ):
        assert words in done.output, f"{words}\n{done.output}"
    raw = json.loads(bench.call("describe", "walk", "-o", "json").output)
    assert raw["status"]["history"] == [STATUS["history"][0]]


def test_suspend_and_resume_pass_the_servers_validation(bench: Bench) -> None:
    before = bench.run()["metadata"]["generation"]
    assert bench.call("suspend", "walk").exit_code == 0
    held = bench.run()
    assert held["spec"]["suspend"] is True
    assert "kubectl drivetrain" in held["metadata"]["annotations"][labels.SUSPENDED_BY]
    assert held["status"] == STATUS | {"conditions": held["status"]["conditions"]}
    assert bench.call("resume", "walk").exit_code == 0
    freed = bench.run()
    assert freed["spec"]["suspend"] is False
    assert labels.SUSPENDED_BY not in freed["metadata"].get("annotations", {})
    assert freed["metadata"]["generation"] == before + 2
    managers = {entry["manager"] for entry in freed["metadata"]["managedFields"]}
    assert "kubectl-drivetrain" in managers


def test_a_log_that_no_kubelet_can_give(bench: Bench) -> None:
    bench.pod(0)
    done = bench.call("logs", "walk")
    assert done.exit_code == 1
    assert "attempt 2 of walk has no scheduled pod for ranks 0-1: it is Running" in done.output
    gone = bench.call("logs", "walk", "--rank", "2")
    assert "attempt 2 of walk has no pod for ranks 2-3: it is Running" in gone.output


def test_names_nearby_are_found_and_others_elsewhere(bench: Bench) -> None:
    assert "did you mean walk?" in bench.call("describe", "wakl").output
    lost = bench.call("describe", "walk", "-n", "default")
    hint = lost.output.splitlines()[-1]
    assert hint.startswith("there is one in namespace")
    assert bench.namespace in hint


def test_an_account_without_rights_is_told_which(bench: Bench) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "guest"}}
    bench.api.create(account, namespace=bench.namespace)
    path = f"/api/v1/namespaces/{bench.namespace}/serviceaccounts/guest/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = bench.api.request("POST", path, asked)["status"]["token"]
    config = json.dumps(_with_token(bench.kubeconfig, token))
    guest = bench.kubeconfig.with_name("guest")
    guest.write_text(config)
    done = CliRunner().invoke(cli, ["list", "--kubeconfig", str(guest)])
    assert done.exit_code == 1
    assert 'cannot list resource "trainingruns"' in done.output
    assert "ask for that permission" in done.output


def _with_token(kubeconfig: Path, token: str) -> Object:
    config: Object = yaml.safe_load(kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    return config


def test_tensorboards_pod_is_let_in_under_the_restricted_policy(bench: Bench) -> None:
    enforce = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    bench.api.patch("v1", "Namespace", bench.namespace, enforce)
    run = Run.from_object(bench.run())
    placement = Placement("lab/trainer:1", "walk-storage", "node-1", {})
    pod = tensorboard_pod(run, "walk-tensorboard-1", placement, 600)
    made = bench.api.create(pod, namespace=bench.namespace, dryRun="All", fieldValidation="Strict")
    assert made["spec"]["activeDeadlineSeconds"] == 600
    pod["spec"]["hostPID"] = True
    with pytest.raises(RefusedError, match="violates PodSecurity"):
        bench.api.create(pod, namespace=bench.namespace, dryRun="All")


def test_kubectl_finds_the_plugin_and_its_completion(bench: Bench, tmp_path: Path) -> None:
    """By programs on the PATH, as an installation puts them there."""
    entries = {"kubectl-drivetrain": "main", "kubectl_complete-drivetrain": "completion"}
    for name, module in entries.items():
        program = tmp_path / name
        program.write_text(
            f"#!{sys.executable}\nfrom drivetrain_operator.kubectl.{module} import main\n\nmain()\n"
        )
        program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "KUBECONFIG": str(bench.kubeconfig),
    }
    kubectl = Kubectl(bench.kubeconfig).command()[0]

    def asked(*words: str) -> str:
        done = subprocess.run(
            [kubectl, *words], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert "walk" in asked("drivetrain", "list")
    assert asked("__complete", "drivetrain", "desc").splitlines()[0].startswith("describe")
    assert asked("__complete", "drivetrain", "logs", "wa").splitlines() == [
        "walk\tRunning",
        ":4",
    ]


def test_waiting_sees_what_an_operator_writes_meanwhile(bench: Bench) -> None:
    with ThreadPoolExecutor() as pool:
        words = ("suspend", "walk", "--wait", "--timeout", "30s")
        waiting = pool.submit(bench.call, *words)
        wait_for(lambda: bench.run()["spec"].get("suspend"), "the patch")
        for phase in ("Suspending", "Suspended"):
            bench.set_status(phase=phase, message="as asked")
        done = waiting.result(60)
    assert done.exit_code == 0, done.output
    assert "walk: Suspended: as asked" in done.output
