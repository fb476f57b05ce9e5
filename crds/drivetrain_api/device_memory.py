"""Free memory of CUDA devices, asked of their driver: importing torch would take seconds.

A context, which torch needs to tell of its device, would take memory of it as well.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final

from drivetrain_api.memory import AvailableMemory

NVML: Final = "libnvidia-ml.so.1"
_OK: Final = 0


class _NvmlMemory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def roomiest_device(root: Path = Path("/"), *, library: str = NVML) -> AvailableMemory | None:
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
    try:
        nvml: Any = ctypes.CDLL(library)
    except OSError:
        return []
    if nvml.nvmlInit_v2() != _OK:
        return []
    try:
        return _nvml_free(nvml)
    finally:
        nvml.nvmlShutdown()


def _nvml_free(nvml: Any) -> list[int]:  # noqa: ANN401 - a library has any function
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _OK:
        return []
    found = []
    for index in range(count.value):
        handle, memory = ctypes.c_void_p(), _NvmlMemory()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != _OK:
            continue
        if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == _OK:
            found.append(int(memory.free))
    return found


def _amd(root: Path) -> list[int]:
    found = []
    for total in (root / "sys/class/drm").glob("card*/device/mem_info_vram_total"):
        try:
            used = total.with_name("mem_info_vram_used").read_text()
            found.append(int(total.read_text()) - int(used))
        except (OSError, ValueError):
            continue
    return found
