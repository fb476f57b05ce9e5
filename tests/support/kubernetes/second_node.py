"""A second node that runs pods, beside the first: what only two nodes can show.

It shares the first one's sandbox, so its network and its disk; kubelet, containerd, pods'
addresses and control groups are its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.support.kubernetes.api import wait_for
from tests.support.kubernetes.control_plane import Component
from tests.support.kubernetes.image_parts import Image
from tests.support.kubernetes.image_store import ImageStore
from tests.support.kubernetes.images import PAUSE
from tests.support.kubernetes.node import RUNTIME_COMES, Node
from tests.support.kubernetes.node_files import NodeFiles
from tests.support.kubernetes.node_slot import kill_group, make_group
from tests.support.kubernetes.programs import Program, ensure

_READY_S = 90.0


class SecondNode:
    """Use as a context; what still runs on it is killed at its end.

    Args:
        first: The node to stand beside.
        images: What its containers may be made of.
        name: Of the node.
    """

    def __init__(self, first: Node, images: Sequence[Image], name: str = "node-2") -> None:
        self.name = name
        self._first = first
        self._images = images
        self.files = NodeFiles(first.files.path(name), first.slot, name, PAUSE, number=1)
        self._programs: list[Component] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _start(self) -> None:
        files = self.files
        shutil.rmtree(files.folder, ignore_errors=True)
        files.folder.mkdir()
        files.write()
        ImageStore.shared().clone(self._images, files.runtime)
        make_group(files.cgroup)
        containerd = shutil.which("containerd")
        assert containerd is not None
        self._first.sandbox.run("mkdir", "-p", files.state)
        self._run("containerd", containerd, "--config", files.path("containerd.toml"))
        self._run(
            "kubelet",
            ensure(Program.KUBELET)[Program.KUBELET],
            f"--config={files.path('kubelet.yaml')}",
            f"--kubeconfig={self._first.kubeconfig}",
            f"--root-dir={files.path('kubelet')}",
            f"--cert-dir={files.path('kubelet-certificates')}",
            f"--hostname-override={self.name}",
            f"--node-ip={files.slot.node}",
        )
        wait_for(self._is_ready, f"{self.name} that is Ready", _READY_S)

    def _run(self, name: str, *argv: object) -> None:
        words = [str(word) for word in argv]
        self._programs.append(self._first.run_inside(f"{self.name}-{name}", words, lambda: True))

    def _stop(self) -> None:
        for component in reversed(self._programs):
            component.process.stop()
        kill_group(self.files.cgroup)
        self._first.api.delete("v1", "Node", self.name)

    def _is_ready(self) -> bool:
        for component in self._programs:
            component.process.check_or_restart(RUNTIME_COMES)
        return node_is(self._first, self.name, "True")


def node_is(node: Node, name: str, ready: str) -> bool:
    """Whether a node's condition Ready has this status."""
    found = node.api.find("v1", "Node", name)
    conditions = found["status"].get("conditions") or () if found else ()
    return any(c["type"] == "Ready" and c["status"] == ready for c in conditions)
