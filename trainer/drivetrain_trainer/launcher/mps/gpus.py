"""The GPUs of this pod by UUID, which is the one name that holds in every process."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain_api.machine import VISIBLE, cuda_devices
from drivetrain_trainer.launcher.mps.control import MpsError

if TYPE_CHECKING:
    from collections.abc import Mapping

UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{4,90}")
_SECONDS = 20.0


def gpu_uuids(environ: Mapping[str, str], root: Path = Path("/")) -> tuple[str, ...]:
    """UUIDs of the GPUs that a process started with `environ` would see, in its order.

    Args:
        environ: Environment of the pod.
        root: Where ``proc`` and ``dev`` lie; another folder in tests alone.

    Raises:
        MpsError: they cannot be found out.
    """
    visible = cuda_devices(environ, root).visible
    if visible and all(UUID.fullmatch(name) for name in visible):
        return visible
    known = _of_driver(root) or _of_program(environ)
    try:
        found = tuple(known[int(name)] for name in visible)
    except (ValueError, IndexError):
        found = ()
    if not found:
        raise MpsError(
            f"the UUIDs of the GPUs cannot be found out: {VISIBLE} is "
            f"{environ.get(VISIBLE)!r}, and /proc/driver/nvidia/gpus and nvidia-smi tell of "
            f"{len(known)}; set {VISIBLE} to the UUIDs that `nvidia-smi -L` prints"
        )
    return found


def _of_driver(root: Path) -> list[str]:
    """From the driver's files, in the order of the buses."""
    found = []
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        try:
            match = re.search(r"^GPU UUID:\s*(GPU-\S+)", path.read_text(), re.MULTILINE)
        except OSError:
            continue
        if match is not None and UUID.fullmatch(match[1]):
            found.append(match[1])
    return found


def _of_program(environ: Mapping[str, str]) -> list[str]:
    """From nvidia-smi, which containers have where the driver's `utility` part is given."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH", ""))
    if program is None:
        return []
    try:
        done = subprocess.run(  # noqa: S603 - NVIDIA's program, found on PATH
            [program, "--query-gpu=uuid", "--format=csv,noheader"],
            env=dict(environ),
            capture_output=True,
            check=True,
            text=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if UUID.fullmatch(line.strip())]
