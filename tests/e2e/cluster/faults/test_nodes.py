"""Nodes that are drained or lost: the run goes on elsewhere, and who lives on is fenced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.e2e.cluster.conftest import Images
from tests.e2e.cluster.faults.trial import NAME, Trial
from tests.support.kubernetes.kubectl import Kubectl
from tests.support.kubernetes.node import NAME as NODE
from tests.support.kubernetes.node import Node
from tests.support.kubernetes.second_node import SecondNode, node_is

from drivetrain_api.exit_codes import ExitCode

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture
def uncordoned(kubectl: Kubectl) -> Iterator[None]:
    """The node takes pods again in the end."""
    yield
    kubectl("uncordon", NODE)


@pytest.mark.usefixtures("uncordoned")
def test_a_drained_node_is_waited_for_with_its_reason(trial: Trial, kubectl: Kubectl) -> None:
    trial.start()
    checkpoint = trial.trains()

    kubectl(
        *("drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data"),
        *("--pod-selector", f"drivetrain.dev/run={NAME}", "--timeout", "120s"),
    )

    status = trial.tells("Scheduled", "False", "Unschedulable", "unschedulable")
    assert (status["phase"], status["attempt"]) == ("Pending", 2), status
    assert "unschedulable" in status["message"], status

    kubectl("uncordon", NODE)

    trial.resumes("Disrupted", counted=False, checkpoint=checkpoint, code=None)
    assert trial.endings(1)[0].code == ExitCode.CHECKPOINTED
    assert trial.steps(2)[0] >= trial.steps(1)[-1], "it goes on where SIGTERM found it"


@contextmanager
def partition(node: Node, address: str) -> Iterator[None]:
    """The node's kubelet stands still, and nothing reaches a pod of it, nor comes from there."""
    node.kubelet.pause()
    try:
        node.sandbox.run("ip", "route", "add", "blackhole", f"{address}/32")
        yield
    finally:
        node.sandbox.run("ip", "route", "del", "blackhole", f"{address}/32")
        node.kubelet.resume()


@pytest.mark.nightly  # minutes: a node is lost only once its time-outs have passed
def test_a_lost_nodes_pod_lives_on_and_may_not_commit(
    trial: Trial, node: Node, images: Images
) -> None:
    trial.start()
    trial.trains()
    pod = trial.pod(1)
    old = trial.processes(1)
    with SecondNode(node, [images.trainer]) as second:
        with partition(node, pod["status"]["podIP"]):
            reported = trial.checkpoint(1)
            trial.wait(lambda: node_is(node, NODE, "Unknown"), "node that is lost")
            trial.tells("Restarting", "True", "BackingOff", "Disrupted")
            assert old.rank(0) is not None, "nobody told it"
            status = trial.resumes("Disrupted", counted=False, checkpoint=reported, code=None)
            assert "DeletionByTaintManager" in status["history"][0]["message"], status
            assert trial.pod(2)["spec"]["nodeName"] == second.name

            trial.wait(lambda: not old.all(), "end of the pod that nobody ended")

            log = log_of(node, pod)
            assert "attempt 2 owns this run directory" in log
            committed = attempts(trial.run_directory())
            assert committed == sorted(committed), "the old attempt wrote after the new one began"
            assert trial.steps(2)[0] > reported, "what it wrote in the dark is not lost"
        trial.wait(lambda: node_is(node, NODE, "True"), "node that is back")
        trial.delete(NAME)
        trial.gone(NAME)
    trial.witness.check()


def log_of(node: Node, pod: dict[str, dict[str, str]]) -> str:
    """What a pod's container wrote, read where containerd keeps it."""
    meta = pod["metadata"]
    folder = f"{meta['namespace']}_{meta['name']}_{meta['uid']}"
    return (node.files.path("pod-logs") / folder / "trainer" / "0.log").read_text()


def attempts(directory: Path) -> list[int]:
    """Which attempt wrote each checkpoint, by step; the run still makes and removes some."""
    found: list[int] = []
    for path in sorted(directory.glob("checkpoints/step_*/manifest.json")):
        with suppress(FileNotFoundError):
            found.append(json.loads(path.read_text())["attempt"])
    return found
