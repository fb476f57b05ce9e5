"""Debian packages that a node and its images need, installed where they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HostProgram:
    """A program of the machine, and the Debian package that has it."""

    command: str
    package: str

    @property
    def present(self) -> bool:
        """Whether it can be executed; a name with a slash is a file."""
        return shutil.which(self.command) is not None or Path(self.command).exists()


NODE = (
    HostProgram("containerd", "containerd"),
    HostProgram("runc", "runc"),
    HostProgram("/usr/lib/cni/bridge", "containernetworking-plugins"),
    HostProgram("ip", "iproute2"),
    HostProgram("iptables", "iptables"),
    HostProgram("nft", "nftables"),
    HostProgram("conntrack", "conntrack"),
    HostProgram("unshare", "util-linux"),
)
IMAGES = (
    HostProgram("buildah", "buildah"),
    HostProgram("containers-storage", "containers-storage"),
    HostProgram("mmdebstrap", "mmdebstrap"),
    HostProgram("containerd", "containerd"),
)


class MissingPackagesError(RuntimeError):
    """The machine lacks programs; the message is one line that says which and how to get them."""


def ensure_packages(wanted: Iterable[HostProgram]) -> None:
    """Install what is missing, where this is root on a system with apt.

    Raises:
        MissingPackagesError: Something is missing and cannot be installed.
    """
    missing = sorted({program.package for program in wanted if not program.present})
    if os.geteuid() != 0:
        raise MissingPackagesError("a node and its images need root: it mounts and makes links")
    if not missing:
        return
    advice = f"apt-get install {' '.join(missing)}"
    if shutil.which("apt-get") is None:
        raise MissingPackagesError(f"not here: {', '.join(missing)}; on Debian: {advice}")
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    for command in (["apt-get", "update", "--quiet"], install):
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and command is install:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            raise MissingPackagesError(f"{advice} failed: {last}")
