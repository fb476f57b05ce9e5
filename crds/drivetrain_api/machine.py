"""CUDA devices and /dev/shm, asked of the kernel: importing torch would take seconds."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class CudaDevices:
    """What a process that we start would see."""

    visible: tuple[str, ...]
    """Values for CUDA_VISIBLE_DEVICES, one a device."""
    searched: str
    """Where we looked and what we found, for messages."""


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
    chosen = environment.get(VISIBLE)
    if chosen is None or not count:
        return CudaDevices(tuple(str(index) for index in range(count)), found)
    visible = tuple(part.strip() for part in chosen.split(",") if part.strip() not in ("", "-1"))
    return CudaDevices(visible, f"{found}; {VISIBLE}={chosen!r}")


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
