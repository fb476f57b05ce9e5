"""etcd, an API server and a controller manager on loopback: Kubernetes without nodes.

Pods stay Pending until a test sets their status. Needs no root; any number may run at once.
"""

from __future__ import annotations

import base64
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml
from tests.support.kubernetes.api import Api, Object, wait_for
from tests.support.kubernetes.credentials import free_ports, write_signing_key
from tests.support.kubernetes.processes import Process, ProcessDiedError
from tests.support.kubernetes.programs import CONTROL_PLANE, Program, ensure

HOST = "127.0.0.1"
_STARTS = 3
"""Tries: another may take a port between its choice and its use."""
_READY_S = 60.0


@dataclass(frozen=True)
class Component:
    """One server of the control plane, with a test of whether it serves."""

    process: Process
    serves: Callable[[], object]

    @property
    def pid(self) -> int:
        """Of the running server."""
        return self.process.pid

    def start(self) -> None:
        """Start it and wait until it serves.

        Raises:
            ProcessDiedError: It ended by itself, with the end of its log.
            TimeoutError: It does not serve.
        """
        self.process.start()
        self.wait()

    def wait(self, timeout_s: float = _READY_S) -> None:
        """Wait until it serves."""

        def look() -> object:
            self.process.check()
            return self.serves()

        wait_for(look, f"answer of {self.process.name}", timeout_s)

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it: at once, or politely by SIGTERM."""
        self.process.stop(number)

    def restart(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Stop and start it, on the same port and the same data."""
        self.stop(number)
        self.start()

    def pause(self) -> None:
        """Freeze it: its connections stay open and nobody answers. Returns once it is frozen."""
        self.process.pause()

    def resume(self) -> None:
        """Go on after `pause`, and wait until it serves."""
        self.process.resume()
        self.wait()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Frozen within the block, whatever happens there."""
        self.pause()
        try:
            yield
        finally:
            self.resume()


class ControlPlane:
    """A control plane of its own.

    Args:
        folder: Its files: data, logs, keys, ``kubeconfig``. May exist, empty.
        definitions: CustomResourceDefinitions installed before controllers start, so that the
            garbage collector knows their kinds from the first second.
        api_server_flags: Added to ours.
        controller_flags: Added to ours.
        controllers: Whether to run the controller manager at all.
    """

    def __init__(
        self,
        folder: Path,
        *,
        definitions: Sequence[Object] = (),
        api_server_flags: Sequence[str] = (),
        controller_flags: Sequence[str] = (),
        controllers: bool = True,
    ) -> None:
        self.folder = folder.resolve()
        self._definitions = definitions
        self._api_server_flags = api_server_flags
        self._controller_flags = controller_flags
        self._with_controllers = controllers
        self._programs = ensure(*CONTROL_PLANE)
        self.token = secrets.token_hex(16)
        self.authority = self.folder / "certificates" / "apiserver.crt"
        """Certificate that the server is verified by."""
        self.authority_key = self.authority.with_suffix(".key")
        self.kubeconfig = self.folder / "kubeconfig"
        """Of an administrator."""
        self._components: tuple[Component, ...] = ()

    # -- life ------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start everything; returns once objects can be made and controllers act.

        Raises:
            ProcessDiedError: A server ended by itself, with the end of its log.
            TimeoutError: A server does not serve.
        """
        try:
            self._start()
        except BaseException:
            self._kill()
            raise
        return self

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_signing_key(self.folder / "accounts.key", self.folder / "accounts.pub")
        users = self.folder / "tokens.csv"
        users.touch(mode=0o600)
        users.write_text(f"{self.token},admin,admin,system:masters\n")
        for remaining in reversed(range(_STARTS)):
            try:
                self._serve()
                break
            except ProcessDiedError as error:
                self._kill()
                if not remaining or "address already in use" not in str(error):
                    raise
        self.write_kubeconfig(self.kubeconfig)
        self.install(*self._definitions)
        if self._with_controllers:
            self.controllers.start()

    def stop(self) -> None:
        """End everything at once and remove the folder."""
        self._kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _serve(self) -> None:
        client, peer, port = free_ports(3)
        self.url = f"https://{HOST}:{port}"
        self.etcd = self._etcd(client, peer)
        self.api_server = self._api_server(client, port)
        self.controllers = self._controller_manager()
        self._components = (self.controllers, self.api_server, self.etcd)
        self.api = Api(self.url, self.token, self.authority)
        self.etcd.process.start()
        self.api_server.process.start()
        wait_for(self._certificate_written, "certificate of the API server", _READY_S)
        self.api_server.wait()

    def _certificate_written(self) -> bool:
        self.etcd.process.check()
        self.api_server.process.check()
        return self.authority.exists() and self.authority_key.exists()

    def _kill(self) -> None:
        for component in self._components:
            component.stop()
        if self._components:
            self.api.close()

    # -- use -------------------------------------------------------------------------------

    def install(self, *definitions: Object) -> None:
        """Apply CustomResourceDefinitions and wait until they are served."""
        for definition in definitions:
            self.api.apply(definition)
        for definition in definitions:
            name = definition["metadata"]["name"]
            wait_for(partial(self._established, name), f"served resource {name}")

    def _established(self, name: str) -> bool:
        found = self.api.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
        conditions = found.get("status", {}).get("conditions") or ()
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    def write_kubeconfig(
        self,
        path: Path,
        *,
        url: str | None = None,
        token: str | None = None,
        namespace: str = "default",
    ) -> Path:
        """Write a kubeconfig; of another address (a proxy's) or another user where asked for."""
        authority = base64.b64encode(self.authority.read_bytes()).decode()
        server = {"server": url or self.url, "certificate-authority-data": authority}
        context = {"cluster": "tests", "user": "tests", "namespace": namespace}
        path.touch(mode=0o600)
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "tests", "cluster": server}],
                    "users": [{"name": "tests", "user": {"token": token or self.token}}],
                    "contexts": [{"name": "tests", "context": context}],
                    "current-context": "tests",
                }
            )
        )
        return path

    def account_token(self, namespace: str, name: str, seconds: int = 3600) -> str:
        """A token of a ServiceAccount, to act with its rights."""
        answer = self.api.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {"spec": {"expirationSeconds": seconds}},
        )
        return str(answer["status"]["token"])

    def logs(self) -> str:
        """The end of every server's log."""
        return "\n".join(
            f"--- {component.process.name}\n{component.process.tail()}"
            for component in (self.etcd, self.api_server, self.controllers)
        )

    # -- servers ---------------------------------------------------------------------------

    def _process(self, program: Program, *flags: str) -> Process:
        log = self.folder / f"{program}.log"
        return Process(program, [self._programs[program], *flags], log)

    def _etcd(self, client: int, peer: int) -> Component:
        url, peer_url = f"http://{HOST}:{client}", f"http://{HOST}:{peer}"
        process = self._process(
            Program.ETCD,
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        return Component(process, lambda: self._ready("etcd"))

    def _api_server(self, etcd: int, port: int) -> Component:
        process = self._process(
            Program.API_SERVER,
            f"--etcd-servers=http://{HOST}:{etcd}",
            f"--bind-address={HOST}",
            f"--advertise-address={HOST}",
            f"--secure-port={port}",
            f"--cert-dir={self.authority.parent}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--service-account-key-file={self.folder / 'accounts.pub'}",
            f"--service-account-signing-key-file={self.folder / 'accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--shutdown-delay-duration=0s",
            *self._api_server_flags,
        )
        return Component(process, lambda: self._ready(None))

    def _controller_manager(self) -> Component:
        process = self._process(
            Program.CONTROLLER_MANAGER,
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
            f"--root-ca-file={self.authority}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            *self._controller_flags,
        )
        return Component(process, self._controllers_act)

    def _ready(self, check: str | None) -> bool:
        path = "/readyz" if check is None else f"/readyz/{check}"
        try:
            return self.api.ask("GET", path, timeout_s=5.0).code == 200
        except OSError:
            return False

    def _controllers_act(self) -> object:
        return self.api.find("v1", "ServiceAccount", "default", "default")
