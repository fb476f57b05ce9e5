"""The kubectl plugin on a node that runs pods: a real log, TensorBoard through a real forward."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from typing import Any

import pytest
from tests.e2e.cluster.conftest import Release
from tests.support.kubernetes.api import Object, wait_for
from tests.support.kubernetes.kubectl import Kubectl, run_command
from tests.support.kubernetes.programs import Program, ensure
from tests.support.tiny_sac import TINY_SAC

pytestmark = pytest.mark.e2e

NAME = "board"
RESOURCES = {"limits": {"cpu": "2", "memory": "3Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}
RUN: Object = {
    "apiVersion": "drivetrain.dev/v1alpha1",
    "kind": "TrainingRun",
    "metadata": {"name": NAME},
    "spec": {
        "algo": TINY_SAC,
        "task": {"name": "inverted_pendulum"},
        "training": {"totalEnvSteps": 400},
        "storage": {"size": "1Gi"},
        "checkpoint": {"interval": 200},
        "podTemplate": {
            "spec": {"containers": [{"name": "trainer", "resources": RESOURCES}]},
        },
    },
}
PLUGIN = (sys.executable, "-c", "from drivetrain_operator.kubectl.main import main; main()")


class Plugin:
    """The plugin with a cluster and a namespace; its kubectl is the one that we test with."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl
        self._where = ("--kubeconfig", str(kubectl.kubeconfig), "--namespace", kubectl.namespace)
        folder = ensure(Program.KUBECTL)[Program.KUBECTL].parent
        self._path = {"PATH": f"{folder}:{os.environ['PATH']}"}

    def __call__(self, *words: str) -> str:
        return run_command(*PLUGIN, *words, *self._where, environment=self._path, timeout_s=300.0)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PLUGIN, *words, *self._where],
            env={**os.environ, **self._path},
            stdout=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def finished(release: Release, namespace: Kubectl) -> Plugin:
    """A run that trained for a moment and is over."""
    del release  # the operator works
    namespace.apply(RUN)

    def over() -> Any:
        phase = (namespace.get("trun", NAME).get("status") or {}).get("phase")
        assert phase != "Failed", namespace.get("trun", NAME)["status"]
        return phase == "Complete"

    wait_for(over, "phase Complete", 400.0, 0.5)
    return Plugin(namespace)


def boards(kubectl: Kubectl) -> list[Object]:
    return kubectl.list("pods", "--selector", f"drivetrain.dev/tensorboard={NAME}")


def test_a_finished_run_is_read_to_its_last_file(finished: Plugin) -> None:
    assert finished("logs", NAME, "--tail", "3").strip()
    described = finished("describe", NAME)
    assert "Phase:     Complete" in described
    assert "400 of 400 steps" in described
    found = json.loads(finished("artifacts", NAME, "-o", "json"))
    assert {"run_summary", "last_checkpoint"} <= {a["name"] for a in found["artifacts"]}

    with finished.start("tensorboard", NAME, "--port", "0") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"TensorBoard of {NAME}: http://127.0.0.1:"), line
        url = line.split()[3]
        with urllib.request.urlopen(f"{url}data/runs", timeout=30) as answer:
            assert json.loads(answer.read()), "TensorBoard found no events"
        assert len(boards(finished.kubectl)) == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT
    wait_for(lambda: not boards(finished.kubectl), "the pod gone", 30.0)
