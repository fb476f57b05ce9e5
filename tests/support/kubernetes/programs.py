"""The programs of a real Kubernetes, each of the one version that the tests are made for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
"""Names a folder of programs; looked into first."""


class Program(StrEnum):
    """What may be asked for; the value is the file's name."""

    ETCD = "etcd"
    API_SERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    KUBELET = "kubelet"
    KUBE_PROXY = "kube-proxy"
    KUBECTL = "kubectl"
    COREDNS = "coredns"
    HELM = "helm"
    KWOK = "kwok"
    KUEUE = "kueue"
    KIND = "kind"


@dataclass(frozen=True)
class Source:
    """Where programs of one version come from."""

    name: str
    version: str
    module: str


KUBERNETES = Source("kubernetes", "1.34.4", "k8s.io/kubernetes")
SOURCES: dict[Program, Source] = {
    Program.ETCD: Source("etcd", "3.7.3", "go.etcd.io/etcd/server/v3"),
    Program.API_SERVER: KUBERNETES,
    Program.CONTROLLER_MANAGER: KUBERNETES,
    Program.SCHEDULER: KUBERNETES,
    Program.KUBELET: KUBERNETES,
    Program.KUBE_PROXY: KUBERNETES,
    Program.KUBECTL: KUBERNETES,
    Program.COREDNS: Source("coredns", "1.15.0", "github.com/coredns/coredns"),
    Program.HELM: Source("helm", "4.3.2", "helm.sh/helm/v4"),
    Program.KWOK: Source("kwok", "0.8.0", "sigs.k8s.io/kwok"),
    Program.KUEUE: Source("kueue", "0.17.0", "sigs.k8s.io/kueue"),
    Program.KIND: Source("kind", "0.33.0", "sigs.k8s.io/kind"),
}

CONTROL_PLANE = (Program.ETCD, Program.API_SERVER, Program.CONTROLLER_MANAGER)


class MissingProgramsError(RuntimeError):
    """Programs are not here and cannot be had; the message is one line."""


def cache_folder() -> Path:
    """Where programs that were downloaded or built are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "drivetrain" / "programs"


@cache
def find(program: Program) -> Path | None:
    """The program where it is here already, in the right version."""
    return next((path for path in _places(program) if is_right(program, path)), None)


def ensure(*wanted: Program) -> dict[Program, Path]:
    """Path of each.

    Raises:
        MissingProgramsError: Some cannot be had.
    """
    found = {program: find(program) for program in wanted}
    missing = [f"{program} {SOURCES[program].version}" for program in wanted if not found[program]]
    if missing:
        raise MissingProgramsError(f"not here: {', '.join(missing)}")
    return {program: path for program, path in found.items() if path is not None}


def _places(program: Program) -> Iterator[Path]:
    assets = os.environ.get(ASSETS_VARIABLE)
    if assets:
        yield Path(assets) / program
    on_path = shutil.which(program)
    if on_path:
        yield Path(on_path)
    source = SOURCES[program]
    yield cache_folder() / f"{source.name}-{source.version}" / program


def is_right(program: Program, path: Path) -> bool:
    """Whether the file is that program in the pinned version."""
    source = SOURCES[program]
    if not os.access(path, os.X_OK):
        return False
    if f"\t{source.module}\tv{source.version}".encode() in path.read_bytes():
        return True
    return source.version in _told_version(program, path)


def _told_version(program: Program, path: Path) -> tuple[str, ...]:
    arguments = {
        Program.KUBECTL: ("version", "--client"),
        Program.HELM: ("version", "--short"),
        Program.COREDNS: ("-version",),
        Program.KIND: ("version",),
    }.get(program, ("--version",))
    try:
        told = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except OSError:
        return ()
    return tuple(re.findall(r"\d+\.\d+\.\d+", told.stdout))
