"""Free memory of CUDA devices, asked of their driver: importing torch would take seconds.

A context, which torch needs to tell of its device, would take memory of it as well.
"""

from __future__ import annotations

from pathlib import Path

from drivetrain_api.memory import AvailableMemory
from drivetrain_trainer.hardware import nvml


def roomiest_device(
    root: Path = Path("/"), *, library: str = nvml.LIBRARY
) -> AvailableMemory | None:
    """The most free memory of any device of this machine; None where no driver tells.

    The driver numbers devices by their slots, CUDA by their speed, and a process may see some
    of them alone. What no device has room for fits none of a rank's, whichever that is.

    Args:
        root: Where ``sys`` lies; another folder in tests alone.
        library: NVIDIA's management library.
    """
    free = _nvidia(library) or _amd(root)
    if not free:
        return None
    source = f"most free memory of {len(free)} device(s)"
    return AvailableMemory(max(free), source)


def _nvidia(library: str) -> list[int]:
    with nvml.opened(library) as driver:
        devices = driver.devices() if driver is not None else []
        memories = (device.memory() for device in devices if device is not None)
        return [memory.free for memory in memories if memory is not None]


def _amd(root: Path) -> list[int]:
    found = []
    for total in (root / "sys/class/drm").glob("card*/device/mem_info_vram_total"):
        try:
            used = total.with_name("mem_info_vram_used").read_text()
            found.append(int(total.read_text()) - int(used))
        except (OSError, ValueError):
            continue
    return found
