"""The node itself: what it promises to tests, and that nothing of it is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests.e2e.cluster.conftest import KUBECONFIG_VARIABLE, ROOT
from tests.support.kubernetes.api import wait_for
from tests.support.kubernetes.kubectl import Kubectl, reader_pod
from tests.support.kubernetes.node import NAME, Node
from tests.support.kubernetes.node_extras import UNBINDABLE_CLASS
from tests.support.kubernetes.node_slot import Slot

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(KUBECONFIG_VARIABLE in os.environ, reason="about our own node"),
]

ANOTHER_NODE = """
from tests.support.kubernetes.node import Node
node = Node().start()
print(node.slot.number, node.files.folder, flush=True)
input()
"""
"""A node in a process of its own, to be killed."""


@dataclass(frozen=True)
class Leftovers:
    """What a node has outside its own namespaces."""

    process: subprocess.Popen[str]
    slot: int
    folder: Path

    def processes(self) -> list[str]:
        """Command lines of programs that belong to it, containers' parents included."""
        mark = f"{self.folder}/"
        return [
            " ".join(found.info["cmdline"])
            for found in psutil.process_iter(["cmdline"])
            if mark in " ".join(found.info["cmdline"] or ())
        ]

    def mounts(self) -> list[str]:
        return [
            line for line in Path("/proc/mounts").read_text().splitlines() if mark(self) in line
        ]

    def link(self) -> Path:
        return Path(f"/sys/class/net/drivetrain{self.slot}")


def mark(node: Leftovers) -> str:
    return str(node.folder)


@pytest.fixture
def another() -> Iterator[Leftovers]:
    with subprocess.Popen(
        [sys.executable, "-c", ANOTHER_NODE],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        slot, _, folder = process.stdout.readline().strip().partition(" ")
        yield Leftovers(process, int(slot), Path(folder))
        process.kill()


def test_nodes_run_side_by_side_and_one_that_is_killed_leaves_nothing(
    node: Node, another: Leftovers
) -> None:
    assert another.slot != node.slot.number
    assert another.processes()
    assert another.link().exists()
    assert another.mounts() == []

    another.process.send_signal(signal.SIGKILL)
    another.process.wait()

    wait_for(lambda: not another.processes(), "end of all of its programs")
    wait_for(lambda: not another.link().exists(), "end of its link")
    taken = Slot.take()  # who comes next removes what the kernel does not
    try:
        assert not another.folder.exists()
        groups = Path("/sys/fs/cgroup").glob(f"**/drivetrain-node-{another.slot}")
        assert list(groups) == []
    finally:
        taken.release()
    assert node.api.get("v1", "Node", NAME)


def claim(name: str, storage_class: str | None = None) -> dict[str, object]:
    spec: dict[str, object] = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.mark.usefixtures("node")
def test_claims_bind_by_default_and_never_in_the_other_class(namespace: Kubectl) -> None:
    namespace.apply(claim("bound"), claim("waiting", UNBINDABLE_CLASS))
    wait_for(lambda: namespace.get("pvc", "bound")["status"]["phase"] == "Bound", "bound claim")
    assert namespace.get("pvc", "waiting")["status"]["phase"] == "Pending"


def test_devices_that_are_not_there_are_counted(node: Node) -> None:
    node.set_extended_resource("nvidia.com/gpu", 2)
    status = node.api.get("v1", "Node", NAME)["status"]
    assert status["allocatable"]["nvidia.com/gpu"] == "2"


def test_programs_pause_and_restart(node: Node) -> None:
    before = node.etcd.pid
    node.etcd.pause()
    assert psutil.Process(before).status() == psutil.STATUS_STOPPED
    node.etcd.resume()
    assert node.api.get("v1", "Node", NAME)
    node.api_server.restart()
    assert node.api.get("v1", "Node", NAME)
    assert node.etcd.pid == before


def test_pods_run_on_another_node_until_it_is_lost(node: Node, namespace: Kubectl) -> None:
    fake = node.add_fake_node("fake-lost")
    namespace.apply(pinned_pod(fake.name))
    wait_for(lambda: namespace.get("pod", "played")["status"]["phase"] == "Running", "running pod")

    assert fake.kubelet is not None
    fake.kubelet.stop()
    wait_for(lambda: taints(node, fake.name) & {"node.kubernetes.io/unreachable"}, "taint", 90.0)
    node.api.delete("v1", "Node", fake.name)


def taints(node: Node, name: str) -> set[str]:
    found = node.api.get("v1", "Node", name)["spec"].get("taints") or ()
    return {taint["key"] for taint in found}


def pinned_pod(node: str) -> dict[str, object]:
    pod = reader_pod("played", "none", "local.test/anything:1")
    pod["spec"] |= {"nodeName": node, "volumes": []}
    pod["spec"]["containers"][0]["volumeMounts"] = []
    return pod
