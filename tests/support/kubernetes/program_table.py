"""Which programs there are, of which version, and where each comes from."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
"""Names a folder of programs; looked into first."""
Report = Callable[[str], None]
"""Takes a line that tells what goes on."""


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
    """What programs of one project are made of."""

    name: str
    version: str
    module: str
    package: str = ""
    """Of the program within the module; ``{}`` stands for the program's name."""
    download: str = ""
    """Address of a release, with ``{version}``, ``{os}``, ``{arch}`` and ``{program}``."""
    digest: str = ""
    """Address of a text that holds the download's SHA-256."""

    @property
    def folder(self) -> Path:
        """Of this version in the cache."""
        return cache_folder() / f"{self.name}-{self.version}"


_GITHUB: Final = "https://github.com/{}/releases/download/v{{version}}/"
KUBERNETES: Final = Source(
    "kubernetes",
    "1.34.4",
    "k8s.io/kubernetes",
    "/cmd/{}",
    "https://dl.k8s.io/release/v{version}/bin/{os}/{arch}/{program}",
    "https://dl.k8s.io/release/v{version}/bin/{os}/{arch}/{program}.sha256",
)
_ETCD_RELEASES: Final = _GITHUB.format("etcd-io/etcd")
_ETCD: Final = Source(
    "etcd",
    "3.7.3",
    "go.etcd.io/etcd/server/v3",
    "",
    _ETCD_RELEASES + "etcd-v{version}-{os}-{arch}.tar.gz",
    _ETCD_RELEASES + "SHA256SUMS",
)
_COREDNS_RELEASE: Final = _GITHUB.format("coredns/coredns") + "coredns_{version}_{os}_{arch}.tgz"
_COREDNS: Final = Source(
    "coredns",
    "1.15.0",
    "github.com/coredns/coredns",
    "",
    _COREDNS_RELEASE,
    _COREDNS_RELEASE + ".sha256",
)
_HELM_RELEASE: Final = "https://get.helm.sh/helm-v{version}-{os}-{arch}.tar.gz"
_HELM: Final = Source(
    "helm", "4.3.2", "helm.sh/helm/v4", "/cmd/helm", _HELM_RELEASE, _HELM_RELEASE + ".sha256sum"
)
_KIND_RELEASE: Final = _GITHUB.format("kubernetes-sigs/kind") + "kind-{os}-{arch}"
_KIND: Final = Source(
    "kind", "0.33.0", "sigs.k8s.io/kind", "", _KIND_RELEASE, _KIND_RELEASE + ".sha256sum"
)
SOURCES: Final[dict[Program, Source]] = {
    Program.ETCD: _ETCD,
    Program.API_SERVER: KUBERNETES,
    Program.CONTROLLER_MANAGER: KUBERNETES,
    Program.SCHEDULER: KUBERNETES,
    Program.KUBELET: KUBERNETES,
    Program.KUBE_PROXY: KUBERNETES,
    Program.KUBECTL: KUBERNETES,
    Program.COREDNS: _COREDNS,
    Program.HELM: _HELM,
    Program.KIND: _KIND,
    # released without digests, and as an image alone
    Program.KWOK: Source("kwok", "0.8.0", "sigs.k8s.io/kwok", "/cmd/kwok"),
    Program.KUEUE: Source("kueue", "0.17.0", "sigs.k8s.io/kueue", "/cmd/kueue"),
}

CONTROL_PLANE: Final = (Program.ETCD, Program.API_SERVER, Program.CONTROLLER_MANAGER)
NODE: Final = (
    *CONTROL_PLANE,
    Program.SCHEDULER,
    Program.KUBELET,
    Program.KUBE_PROXY,
    Program.COREDNS,
    Program.KUBECTL,
    Program.HELM,
    Program.KWOK,
)
SETS: Final[dict[str, tuple[Program, ...]]] = {
    "control-plane": CONTROL_PLANE,
    "node": NODE,
    "all": tuple(Program),
}


class MissingProgramsError(RuntimeError):
    """Programs are not here and cannot be had; the message is one line."""


def cache_folder() -> Path:
    """Where programs that were downloaded or built are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "drivetrain" / "programs"
