"""Memory that a run holds on NVIDIA GPUs, asked of the driver's own library (NVML)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIBRARY: Final = "libnvidia-ml.so.1"
_OK: Final = 0
_MOST_PROCESSES: Final = 256
_UNKNOWN: Final = (1 << 64) - 1
"""What NVML says where it cannot tell a process's memory."""


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t of the _v3 calls."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class GpuMemory:
    """The devices that this process sees.

    Where the driver's process ids are ours, the memory of the run's own processes counts.
    In a container they often are the host's: then it is all that the visible devices have in
    use, other programs' included.
    """

    def __init__(self, library: Any) -> None:  # noqa: ANN401 - a library has any function
        """Take an initialised NVML, or what stands in for it."""
        self._library = library
        self._devices = self._handles()
        self._by_process = False

    @classmethod
    def here(cls) -> Self | None:
        """The machine's devices; None where there is no driver, or no device."""
        try:
            library = ctypes.CDLL(_LIBRARY)
        except OSError:
            return None
        if library.nvmlInit_v2() != _OK:
            return None
        found = cls(library)
        return found if found._devices else None

    def used(self, pids: Iterable[int]) -> int | None:
        """Bytes in use by these processes, or by anyone where that cannot be told."""
        own = self._of_processes(set(pids))
        if own is None and self._by_process:
            return 0
        self._by_process = own is not None
        return own if own is not None else self._of_devices()

    def _handles(self) -> list[ctypes.c_void_p]:
        count = ctypes.c_uint()
        if self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _OK:
            return []
        found = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if self._library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == _OK:
                found.append(handle)
        return found

    def _of_processes(self, pids: set[int]) -> int | None:
        """None where none of them is known to the driver by its id."""
        total, known = 0, False
        for handle in self._devices:
            count = ctypes.c_uint(_MOST_PROCESSES)
            table = (_Process * _MOST_PROCESSES)()
            code = self._library.nvmlDeviceGetComputeRunningProcesses_v3(
                handle, ctypes.byref(count), table
            )
            if code != _OK:
                return None
            for entry in table[: count.value]:
                if entry.pid in pids and entry.used != _UNKNOWN:
                    known, total = True, total + entry.used
        return total if known else None

    def _of_devices(self) -> int | None:
        total = 0
        for handle in self._devices:
            memory = _Memory()
            if self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != _OK:
                return None
            total += memory.used
        return total
