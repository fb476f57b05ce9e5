"""A control plane whose pods "run": one node that is an object alone, with room for all."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml
from tests.support.kubernetes.api import wait_for
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.processes import Process
from tests.support.kubernetes.programs import CONTROL_PLANE, Program, ensure
from tests.support.operator_process import OperatorProcess

NAMESPACES: Final = tuple(f"bench-{number}" for number in range(10))
"""Runs are spread over these."""
_DEFINITION: Final = Path(__file__).parents[3] / "crds" / "trainingruns.drivetrain.dev.yaml"
_STAGES: Final = Path(__file__).with_name("stages.yaml")
_MARK: Final = "kwok.x-k8s.io/node"
_NODE: Final = "bench"
_QUICK: Final = ("--kube-api-qps=2000", "--kube-api-burst=4000")
"""Controllers that hold themselves back would be what is measured."""


class Playground:
    """etcd, API server, controller manager, scheduler and kwok, fresh; a context manager."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="drivetrain-bench-"))
        self._stack = ExitStack()
        self._operators = 0

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def operator(self, kubeconfig: Path | None = None, *flags: str) -> OperatorProcess:
        """A replica of the operator, not started yet; ended with the playground."""
        self._operators += 1
        made = OperatorProcess(
            self._folder / f"operator-{self._operators}",
            kubeconfig or self.plane.kubeconfig,
            *flags,
        )
        self._stack.callback(made.process.stop)
        return made

    def _close(self) -> None:
        self._stack.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        programs = ensure(*CONTROL_PLANE, Program.SCHEDULER, Program.KWOK)
        self.plane = self._stack.enter_context(
            ControlPlane(
                self._folder / "plane",
                definitions=[yaml.safe_load(_DEFINITION.read_text(encoding="utf-8"))],
                controller_flags=_QUICK,
            )
        )
        self.plane.api.apply(_node(), *map(_namespace, NAMESPACES))
        kubeconfig = f"--kubeconfig={self.plane.kubeconfig}"
        self._run(
            programs[Program.SCHEDULER],
            kubeconfig,
            "--leader-elect=false",
            "--secure-port=0",
            *_QUICK,
        )
        self._run(
            programs[Program.KWOK],
            kubeconfig,
            f"--config={_STAGES}",
            f"--manage-nodes-with-annotation-selector={_MARK}=fake",
            "--node-lease-duration-seconds=40",
            "--cidr=10.128.0.0/12",
        )
        wait_for(self._ready, "node that takes pods", 60.0)

    def _run(self, program: Path, *flags: str) -> None:
        log = self._folder / f"{program.name}.log"
        process = Process(program.name, [program, *flags], log)
        process.start()
        self._stack.callback(process.stop)

    def _ready(self) -> bool:
        node = self.plane.api.get("v1", "Node", _NODE)
        conditions = node.get("status", {}).get("conditions") or ()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        return ready and not node["spec"].get("taints")


def _node() -> dict[str, object]:
    room = {"cpu": "1M", "memory": "1Pi", "pods": "1M"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": _NODE, "annotations": {_MARK: "fake"}},
        "status": {"capacity": room, "allocatable": room},
    }


def _namespace(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
