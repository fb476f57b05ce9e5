"""CUDA devices and /dev/shm, asked of the kernel: importing torch would take seconds."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
HIP_VISIBLE: Final = "HIP_VISIBLE_DEVICES"


@dataclass(frozen=True)
class CudaDevices:
    """What a process that we start would see."""

    visible: tuple[str, ...]
    """Values for CUDA_VISIBLE_DEVICES, one a device."""
    searched: str
    """Where we looked and what we found, for messages."""
    hip: bool = False
    """Whether they are AMD's, which Torch names CUDA devices as well."""


def cuda_devices(environment: Mapping[str, str], root: Path = Path("/")) -> CudaDevices:
    """The devices that the driver shows and ``CUDA_VISIBLE_DEVICES`` leaves.

    Args:
        environment: The environment a pod will start from.
        root: Where ``proc`` and ``dev`` lie; another folder in tests alone.
    """
    nodes = [
        name
        for name in _names(root / "dev")
        if re.fullmatch(r"nvidia[0-9]+", name) or name == "dxg"
    ]
    count = max(len(_names(root / "proc/driver/nvidia/gpus")), len(nodes))
    found = f"/proc/driver/nvidia/gpus and /dev/nvidia* show {count or 'no'} device(s)"
    if not count and (root / "dev/kfd").exists():
        return _amd_devices(environment, root)
    return _visible(VISIBLE, environment, CudaDevices(_numbered(count), found))


def _amd_devices(environment: Mapping[str, str], root: Path) -> CudaDevices:
    """A render node each: a pod is given those of its own GPUs."""
    count = sum(name.startswith("renderD") for name in _names(root / "dev/dri"))
    found = f"/dev/kfd and /dev/dri/renderD* show {count or 'no'} device(s)"
    variable = HIP_VISIBLE if HIP_VISIBLE in environment else VISIBLE
    return _visible(variable, environment, CudaDevices(_numbered(count), found, hip=True))


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(index) for index in range(count))


def _visible(variable: str, environment: Mapping[str, str], there: CudaDevices) -> CudaDevices:
    """Those of the devices that a variable of the environment leaves."""
    chosen = environment.get(variable)
    if chosen is None or not there.visible:
        return there
    visible = tuple(part.strip() for part in chosen.split(",") if part.strip() not in ("", "-1"))
    return CudaDevices(visible, f"{there.searched}; {variable}={chosen!r}", there.hip)


def free_shared_memory(path: Path = Path("/dev/shm")) -> int:  # noqa: S108 - the mount itself is asked about
    """Free bytes of /dev/shm; 0 where there is none. The memory limit may be lower still."""
    try:
        facts = os.statvfs(path)
    except OSError:
        return 0
    return facts.f_bavail * facts.f_frsize


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone are wanted
    except OSError:
        return []
