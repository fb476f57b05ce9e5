"""kubectl against one cluster: what a user types, whatever cluster that is."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kubernetes.api import Object, wait_for
from tests.support.kubernetes.programs import Program, ensure

_TIMEOUT_S = 120.0


class CommandError(RuntimeError):
    """A command failed; the message has what it wrote."""


def run_command(
    *words: str | Path,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> str:
    """Run a program and give its output.

    Raises:
        CommandError: It failed.
    """
    done = subprocess.run(
        [str(word) for word in words],
        input=stdin,
        env=None if environment is None else {**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        command = " ".join(str(word) for word in words)
        raise CommandError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@dataclass(frozen=True)
class Kubectl:
    """kubectl with a kubeconfig; `namespace` is the default of its commands."""

    kubeconfig: Path
    namespace: str = "default"

    def within(self, namespace: str) -> Kubectl:
        """The same, in another namespace."""
        return Kubectl(self.kubeconfig, namespace)

    def __call__(
        self, *words: str | Path, stdin: str | None = None, timeout_s: float = _TIMEOUT_S
    ) -> str:
        """Run one command and give its output; raises CommandError where it fails."""
        return run_command(*self.command(*words), stdin=stdin, timeout_s=timeout_s)

    def command(self, *words: str | Path) -> list[str]:
        """The command line, to run it beside a test."""
        program = ensure(Program.KUBECTL)[Program.KUBECTL]
        where = ("--kubeconfig", self.kubeconfig, "--namespace", self.namespace)
        return [str(word) for word in (program, *where, *words)]

    def apply(self, *objects: Object) -> None:
        """Server-side apply; a field that the server does not know is an error."""
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self("apply", "--server-side", "--validate=strict", "-f", "-", stdin=document)

    def get(self, kind: str, name: str) -> Object:
        """One object."""
        found: Object = json.loads(self("get", kind, name, "--output", "json"))
        return found

    def find(self, kind: str, name: str) -> Object | None:
        """As `get`; None where it does not exist."""
        text = self("get", kind, name, "--output", "json", "--ignore-not-found")
        return json.loads(text) if text else None

    def list(self, kind: str, *words: str) -> list[Object]:
        """Objects of a kind; selectors as kubectl takes them."""
        found: dict[str, Any] = json.loads(self("get", kind, *words, "--output", "json"))
        return list(found["items"])

    def read_volume(self, claim: str, image: str, destination: Path) -> Path:
        """Copy everything on a claim's volume here, through a pod that mounts it."""
        name = f"read-{claim}"[:63]
        self.apply(reader_pod(name, claim, image))
        try:
            wait_for(lambda: self._runs(name), f"pod {name}", 120.0, 0.5)
            pack = ("tar", "-C", "/volume", "-cf", "-", ".")
            command = self.command("exec", name, "--", *pack)
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                    archive.extractall(destination, filter="data")
        finally:
            self("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
        return destination

    def _runs(self, pod: str) -> bool:
        return bool(self.get("pod", pod)["status"].get("phase") == "Running")


def reader_pod(name: str, claim: str, image: str) -> Object:
    """A pod that does nothing but mount a claim, fit for PodSecurity *restricted*."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "reader",
                    "image": image,
                    "command": ["sleep", "600"],
                    "volumeMounts": [{"name": "volume", "mountPath": "/volume"}],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
            "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": claim}}],
        },
    }
