"""A whole node on this machine: control plane, scheduler, kubelet, proxy, names, containerd.

It has namespaces of its own (`node_sandbox`), so the machine's links, rules and mounts stay
as they are, and any number of nodes may run at once. Needs root.
"""

from __future__ import annotations

import base64
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml
from tests.support.kubernetes.api import Api, Object, wait_for
from tests.support.kubernetes.control_plane import Component
from tests.support.kubernetes.credentials import write_signing_key
from tests.support.kubernetes.host_packages import NODE, ensure_packages
from tests.support.kubernetes.image_parts import Image, cache_folder
from tests.support.kubernetes.image_store import ImageStore
from tests.support.kubernetes.images import PAUSE
from tests.support.kubernetes.node_extras import FakeNode, Volumes, set_extended_resource
from tests.support.kubernetes.node_files import SERVICES, NodeFiles
from tests.support.kubernetes.node_sandbox import InsideProcess, Sandbox
from tests.support.kubernetes.node_slot import Slot, make_group
from tests.support.kubernetes.processes import Process
from tests.support.kubernetes.programs import CONTROL_PLANE, Program, ensure

NAME = "node-1"
PROGRAMS = (
    *CONTROL_PLANE,
    Program.SCHEDULER,
    Program.KUBELET,
    Program.KUBE_PROXY,
    Program.COREDNS,
)
_PORT = 6443
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_READY_S = 90.0
RUNTIME_COMES = "server is not initialized yet"
"""The kubelet's last words where containerd listens, but is not ready for it."""


class Node:
    """A cluster of one node.

    Args:
        images: What containers may be made of; nothing is ever pulled.
        definitions: CustomResourceDefinitions installed before controllers start.
        controller_flags: Added to ours.
    """

    def __init__(
        self,
        images: Sequence[Image] = (),
        *,
        definitions: Sequence[Object] = (),
        controller_flags: Sequence[str] = (),
    ) -> None:
        ensure_packages(NODE)
        self._programs = ensure(*PROGRAMS)
        self._images = tuple(images)
        self._definitions = definitions
        self._controller_flags = controller_flags
        self._token = secrets.token_hex(16)
        self._processes: list[Process] = []
        self._sandbox: Sandbox | None = None

    # -- life ------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start everything; returns once the node is ready for pods.

        Raises:
            ProcessDiedError: A program ended by itself, with the end of its log.
            TimeoutError: It does not become ready; with the ends of all logs.
        """
        self.slot = Slot.take()
        folder = cache_folder("nodes") / str(self.slot.number)
        self.files = NodeFiles(folder, self.slot, NAME, PAUSE)
        try:
            self.slot.record(folder)
            self._start()
        except TimeoutError as error:
            error.add_note(self.logs())
            self.stop()
            raise
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        files = self.files
        shutil.rmtree(files.folder, ignore_errors=True)
        files.folder.mkdir(parents=True, mode=0o700)
        files.write()
        ImageStore.shared().clone(self._images, files.runtime)
        make_group(self.slot.cgroup)
        self._sandbox = Sandbox(self.slot, files.path("sandbox.log"))
        self._sandbox.start()
        self._credentials()
        self._start_control_plane()
        self._start_runtime()
        self.scheduler.wait()
        self.controllers.wait()
        wait_for(self._becomes_ready, "node that is Ready", _READY_S)
        self.volumes = Volumes(self.api, files.path("volumes"))
        self.volumes.start()

    def stop(self) -> None:
        """End everything at once and remove the files."""
        if self._sandbox is not None:
            self._sandbox.stop()
            self._sandbox = None
        for process in self._processes:
            process.stop()
        self._processes.clear()
        if hasattr(self, "api"):
            self.api.close()
        self.slot.clean()
        self.slot.release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- use -------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator; works from the host."""
        return self.files.kubeconfig

    @property
    def url(self) -> str:
        """Of the API server; the same from the host, the node and its pods."""
        return f"https://{self.slot.node}:{_PORT}"

    @property
    def sandbox(self) -> Sandbox:
        """The node's namespaces, to run a program in."""
        assert self._sandbox is not None, "the node is not started"
        return self._sandbox

    def load(self, image: Image) -> None:
        """Bring another image onto the running node."""
        self.sandbox.run(
            *("ctr", "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io"),
            *("images", "import", ImageStore.shared().archive(image, self.files.folder)),
        )

    def set_extended_resource(self, resource: str, count: int) -> None:
        """Give the node devices that it does not have, such as ``nvidia.com/gpu``."""
        set_extended_resource(self.api, NAME, resource, count)

    def add_fake_node(self, name: str = "fake-1", *, tainted: bool = True) -> FakeNode:
        """Add another node that is an object alone."""
        return FakeNode(self, name, tainted=tainted).start()

    def logs(self, lines: int = 15) -> str:
        """The end of every program's log."""
        found = sorted(self.files.folder.glob("*.log")) if hasattr(self, "files") else []
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
            for path in found
        )

    # -- programs --------------------------------------------------------------------------

    def run_inside(
        self, name: str, argv: Sequence[str | Path], serves: Callable[[], object]
    ) -> Component:
        """Start a program inside the node's namespaces; it ends with the node."""
        process = InsideProcess(
            name, self.sandbox.enter(argv), self.files.path(f"{name}.log"), {"PATH": _PATH}
        )
        self._processes.append(process)
        component = Component(process, serves)
        process.start()
        return component

    def _program(
        self, program: Program, *flags: str, serves: Callable[[], object] = lambda: True
    ) -> Component:
        return self.run_inside(program, [self._programs[program], *flags], serves)

    def _credentials(self) -> None:
        files = self.files
        write_signing_key(files.path("accounts.key"), files.path("accounts.pub"))
        tokens = files.path("tokens.csv")
        tokens.touch(mode=0o600)
        tokens.write_text(f"{self._token},admin,admin,system:masters\n")

    def _start_control_plane(self) -> None:
        files = self.files
        self.etcd = self._program(
            Program.ETCD,
            f"--data-dir={files.path('etcd')}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            serves=lambda: self._answers("/readyz/etcd"),
        )
        self.api_server = self._program(
            Program.API_SERVER, *self._api_server_flags(), serves=lambda: self._answers("/readyz")
        )
        wait_for(self._certificate_written, "certificate of the API server", _READY_S)
        self._write_kubeconfig()
        self.api = Api(self.url, self._token, files.authority)
        self.api_server.wait()
        for definition in self._definitions:
            self.api.apply(definition)
        self.controllers = self._program(
            Program.CONTROLLER_MANAGER,
            f"--kubeconfig={files.kubeconfig}",
            f"--service-account-private-key-file={files.path('accounts.key')}",
            f"--root-ca-file={files.authority}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            *self._controller_flags,
            serves=lambda: self.api.find("v1", "ServiceAccount", "default", "default"),
        )
        self.scheduler = self._program(
            Program.SCHEDULER,
            f"--kubeconfig={files.kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        )

    def _api_server_flags(self) -> list[str]:
        files = self.files
        return [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--service-cluster-ip-range={SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={files.path('accounts.pub')}",
            f"--service-account-signing-key-file={files.path('accounts.key')}",
            f"--cert-dir={files.authority.parent}",
            f"--secure-port={_PORT}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={self.slot.node}",
            f"--token-auth-file={files.path('tokens.csv')}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            "--shutdown-delay-duration=0s",
        ]

    def _start_runtime(self) -> None:
        files = self.files
        containerd = shutil.which("containerd")
        assert containerd is not None
        self.containerd = self.run_inside(
            "containerd", [containerd, "--config", files.path("containerd.toml")], lambda: True
        )
        self.names = self._program(Program.COREDNS, "-conf", str(files.path("Corefile")))
        self.kubelet = self._program(
            Program.KUBELET,
            f"--config={files.path('kubelet.yaml')}",
            f"--kubeconfig={files.kubeconfig}",
            f"--root-dir={files.path('kubelet')}",
            f"--cert-dir={files.path('kubelet-certificates')}",
            f"--hostname-override={NAME}",
            f"--node-ip={self.slot.node}",
            serves=self._is_ready,
        )
        self.proxy = self._program(
            Program.KUBE_PROXY,
            f"--kubeconfig={files.kubeconfig}",
            "--proxy-mode=nftables",
            f"--hostname-override={NAME}",
            "--cluster-cidr=10.244.0.0/16",
            "--conntrack-max-per-core=0",
            "--metrics-bind-address=127.0.0.1:10249",
            "--healthz-bind-address=127.0.0.1:10256",
        )

    # -- states ----------------------------------------------------------------------------

    def _answers(self, path: str) -> bool:
        try:
            return self.api.ask("GET", path, timeout_s=5.0).code == 200
        except OSError:
            return False

    def _certificate_written(self) -> bool:
        self.etcd.process.check()
        self.api_server.process.check()
        authority = self.files.authority
        return authority.exists() and authority.with_suffix(".key").exists()

    def _becomes_ready(self) -> bool:
        for process in self._processes:
            process.check_or_restart(RUNTIME_COMES)
        return self._is_ready()

    def _is_ready(self) -> bool:
        found = self.api.find("v1", "Node", NAME)
        conditions = found["status"].get("conditions", ()) if found else ()
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def _write_kubeconfig(self) -> None:
        authority = base64.b64encode(self.files.authority.read_bytes()).decode()
        server = {"server": self.url, "certificate-authority-data": authority}
        self.files.kubeconfig.touch(mode=0o600)
        self.files.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "tests", "cluster": server}],
                    "users": [{"name": "tests", "user": {"token": self._token}}],
                    "contexts": [
                        {"name": "tests", "context": {"cluster": "tests", "user": "tests"}}
                    ],
                    "current-context": "tests",
                }
            )
        )
