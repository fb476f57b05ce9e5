"""What a node is given beyond running pods: volumes, devices that are not there, other nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.kubernetes.api import Api, Object, wait_for
from tests.support.kubernetes.programs import Program, ensure

if TYPE_CHECKING:
    from tests.support.kubernetes.control_plane import Component
    from tests.support.kubernetes.node import Node

STORAGE_CLASS: Final = "standard"
"""The default class; kind's has the same name."""
UNBINDABLE_CLASS: Final = "never"
"""A class that has no volume and makes none: its claims stay pending."""
_FAKE: Final = "kwok.x-k8s.io/node"
_STAGES: Final = Path(__file__).with_name("fake_node_stages.yaml")


class Volumes:
    """Volumes of the default class, each a folder of the machine that any user may write to."""

    def __init__(self, api: Api, folder: Path) -> None:
        self._api = api
        self._folder = folder
        self._made = 0

    def start(self, count: int = 32) -> None:
        """Make both classes and some volumes."""
        self._api.apply(
            _storage_class(STORAGE_CLASS, default=True),
            _storage_class(UNBINDABLE_CLASS, default=False),
        )
        self.add(count)

    def add(self, count: int) -> None:
        """Make more volumes: one is used once."""
        for number in range(self._made, self._made + count):
            path = self.path(f"volume-{number}")
            path.mkdir(parents=True)
            path.chmod(0o777)
            self._api.apply(_volume(path))
        self._made += count

    def path(self, volume: str) -> Path:
        """Folder of a volume; a bound claim names it in ``spec.volumeName``."""
        return self._folder / volume


def _storage_class(name: str, *, default: bool) -> Object:
    mark = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": mark},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "Immediate",
    }


def _volume(path: Path) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": path.name},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "hostPath": {"path": str(path), "type": "Directory"},
        },
    }


def set_extended_resource(api: Api, node: str, resource: str, count: int) -> None:
    """Give a node devices that it does not have; the scheduler counts them."""
    amount = {resource: str(count)}
    api.patch(
        *("v1", "Node", node),
        {"status": {"capacity": amount, "allocatable": amount}},
        subresource="status",
    )


class FakeNode:
    """Another node that is an object alone: pods on it "run" until they are deleted.

    With a second node there the control plane taints one that is lost, which it never does
    to the only one. To lose it, stop `kubelet`: nobody renews its lease any more.
    """

    def __init__(self, node: Node, name: str, *, tainted: bool = True) -> None:
        self.name = name
        self._node = node
        self._taints = [{"key": _FAKE, "value": "fake", "effect": "NoSchedule"}] if tainted else []
        self.kubelet: Component | None = None
        """What plays it."""

    def start(self) -> FakeNode:
        """Make it and keep it alive; it is Ready on return.

        Raises:
            MissingProgramsError: kwok is not here.
        """
        program = ensure(Program.KWOK)[Program.KWOK]
        self._node.api.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": self.name,
                    "annotations": {_FAKE: "fake"},
                    "labels": {"kubernetes.io/hostname": self.name, _FAKE: "fake"},
                },
                "spec": {"taints": self._taints},
            }
        )
        self.kubelet = self._node.run_inside(
            f"kwok-{self.name}",
            [
                program,
                f"--kubeconfig={self._node.kubeconfig}",
                f"--manage-nodes-with-annotation-selector={_FAKE}=fake",
                "--node-lease-duration-seconds=40",
                f"--config={_STAGES}",
            ],
            self._is_ready,
        )
        wait_for(self._is_ready, f"node {self.name} that is Ready", 60.0)
        return self

    def _is_ready(self) -> bool:
        assert self.kubelet is not None
        self.kubelet.process.check()
        found = self._node.api.get("v1", "Node", self.name)
        conditions = found.get("status", {}).get("conditions") or ()
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
