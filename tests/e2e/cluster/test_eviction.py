"""A pod of two is evicted while both train: nothing is lost but a few steps, nothing counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster.conftest import Images, Release
from tests.support.kubernetes.api import Object, wait_for
from tests.support.kubernetes.kubectl import Kubectl

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

NAME = "pair"
STEPS = 5_000
RUN: Object = {
    "apiVersion": "drivetrain.dev/v1alpha1",
    "kind": "TrainingRun",
    "metadata": {"name": NAME},
    "spec": {
        "algo": {"name": "sac", "batchSize": 128},
        "task": {"name": "half_cheetah"},
        "training": {"totalEnvSteps": STEPS},
        "topology": {"nodes": 2},
        "storage": {"size": "1Gi"},
        "checkpoint": {"interval": 500},
        "restart": {"maxRestarts": 0, "backoffSeconds": 1},
    },
}
TARGETED = pytest.mark.parametrize("index", [0, 1], ids=["rank 0", "rank 1"])


class Pair:
    """The run and its pods."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.kubectl.get("trun", NAME).get("status") or {}
        assert status.get("phase") != "Failed", json.dumps(status, indent=1)
        return status

    def checkpoint(self) -> int:
        """Step of the newest one."""
        return int((self.status().get("progress") or {}).get("checkpointEnvSteps", 0))

    def pods(self, attempt: int) -> dict[int, str]:
        """Name of the pod of each index."""
        found = self.kubectl.list("pods", "--selector", f"drivetrain.dev/attempt={attempt}")
        index = "batch.kubernetes.io/job-completion-index"
        return {int(pod["metadata"]["labels"][index]): pod["metadata"]["name"] for pod in found}

    def evict(self, pod: str) -> None:
        """Through the Eviction API, as a drain does it."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.kubectl.namespace},
        }
        path = f"/api/v1/namespaces/{self.kubectl.namespace}/pods/{pod}/eviction"
        self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


@TARGETED
def test_a_run_of_two_pods_survives_an_eviction(
    release: Release, namespace: Kubectl, images: Images, tmp_path: Path, index: int
) -> None:
    del release  # the operator works
    pair = Pair(namespace)
    namespace.apply(RUN)
    first = wait_for(pair.checkpoint, "checkpoint", 300.0, 0.5)
    assert first < STEPS, "the run is too short to be disturbed"
    pods = pair.pods(1)
    assert set(pods) == {0, 1}

    pair.evict(pods[index])

    status = wait_for(lambda: at_attempt(pair, 2), "attempt 2", 120.0, 0.5)
    assert status["disruptions"] == 1
    wait_for(lambda: pair.status().get("phase") == "Complete", "phase Complete", 400.0, 0.5)
    status = pair.status()
    told = json.dumps(status, indent=1)
    assert (status["restarts"], status["attempt"], status["disruptions"]) == (0, 2, 1), told
    assert status["ranks"] == 2, told
    ended, finished = status["history"]
    assert (ended["reason"], ended["counted"]) == ("Disrupted", False), told
    assert finished["reason"] == "TrainingComplete", told
    assert status["runSummary"]["totalEnvSteps"] == STEPS, told

    files = namespace.read_volume(status["storage"], images.trainer.name, tmp_path)
    (directory,) = files.glob("logs/sac/half_cheetah/*/")
    config = json.loads((directory / "run_summary.json").read_text())
    assert config["total_env_steps"] == STEPS


def at_attempt(pair: Pair, number: int) -> dict[str, Any] | None:
    status = pair.status()
    return status if status.get("attempt") == number else None
