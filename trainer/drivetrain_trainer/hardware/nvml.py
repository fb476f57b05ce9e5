"""NVIDIA's management library (NVML), asked through ctypes: the one module that speaks to it.

Importing torch would take seconds, and its context memory of the device. A question that the
driver, the device or an older library cannot answer is answered with None.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY: Final = "libnvidia-ml.so.1"
_OK: Final = 0
_MEMORY_CLOCK: Final = 2
"""NVML_CLOCK_MEM."""
_TEXT: Final = 96
"""NVML_DEVICE_NAME_V2_BUFFER_SIZE and NVML_DEVICE_UUID_V2_BUFFER_SIZE."""
_MOST_PROCESSES: Final = 256
_UNKNOWN: Final = (1 << 64) - 1
"""What NVML says where it cannot tell a process's memory."""


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _MemoryWithReserve(ctypes.Structure):
    """nvmlMemory_v2_t."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


_MEMORY_VERSION: Final = ctypes.sizeof(_MemoryWithReserve) | 2 << 24
"""NVML_STRUCT_VERSION(Memory, 2)."""


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t of the _v3 calls."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of a device."""

    total: int
    free: int
    used: int


class Device:
    """One device of an open library."""

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:  # noqa: ANN401 - a library has any function
        self._library = library
        self._handle = handle

    def memory(self) -> DeviceMemory | None:
        """Memory as it is now."""
        memory = _Memory()
        if not self._ask("nvmlDeviceGetMemoryInfo", ctypes.byref(memory)):
            return None
        return DeviceMemory(int(memory.total), int(memory.free), int(memory.used))

    def usable_bytes(self) -> int | None:
        """Memory less what driver and firmware reserve; all of it where that is not told."""
        memory = _MemoryWithReserve(version=_MEMORY_VERSION)
        if self._ask("nvmlDeviceGetMemoryInfo_v2", ctypes.byref(memory)):
            return int(memory.total - memory.reserved)
        plain = self.memory()
        return None if plain is None else plain.total

    def name(self) -> str | None:
        """Product name."""
        return self._text("nvmlDeviceGetName")

    def uuid(self) -> str | None:
        """Such as GPU-8f6f…, as in CUDA_VISIBLE_DEVICES."""
        return self._text("nvmlDeviceGetUUID")

    def memory_bus_width(self) -> int | None:
        """Bits."""
        return self._number("nvmlDeviceGetMemoryBusWidth")

    def max_memory_clock(self) -> int | None:
        """Greatest clock of the memory, MHz."""
        return self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_int(_MEMORY_CLOCK))

    def processes(self) -> dict[int, int] | None:
        """Bytes in use by each compute process, by the driver's process ids.

        Those of which the driver does not tell the memory are left out.
        """
        count = ctypes.c_uint(_MOST_PROCESSES)
        table = (_Process * _MOST_PROCESSES)()
        if not self._ask("nvmlDeviceGetComputeRunningProcesses_v3", ctypes.byref(count), table):
            return None
        return {
            int(entry.pid): int(entry.used)
            for entry in table[: count.value]
            if entry.used != _UNKNOWN
        }

    def _number(self, function: str, *arguments: object) -> int | None:
        value = ctypes.c_uint()
        return int(value.value) if self._ask(function, *arguments, ctypes.byref(value)) else None

    def _text(self, function: str) -> str | None:
        buffer = ctypes.create_string_buffer(_TEXT)
        if not self._ask(function, buffer, ctypes.c_uint(_TEXT)):
            return None
        return buffer.value.decode(errors="replace") or None

    def _ask(self, function: str, *arguments: object) -> bool:
        return _call(self._library, function, self._handle, *arguments)


class Nvml:
    """An initialised library."""

    def __init__(self, library: Any) -> None:  # noqa: ANN401 - a library has any function
        """Take one that is initialised, or what stands in for it."""
        self._library = library

    def devices(self) -> list[Device | None]:
        """All devices in the order of their bus; None for one that cannot be asked."""
        count = ctypes.c_uint()
        if not _call(self._library, "nvmlDeviceGetCount_v2", ctypes.byref(count)):
            return []
        return [
            self._device("nvmlDeviceGetHandleByIndex_v2", index) for index in range(count.value)
        ]

    def by_uuid(self, uuid: str) -> Device | None:
        """The device, or the MIG slice, of this UUID."""
        return self._device("nvmlDeviceGetHandleByUUID", ctypes.c_char_p(uuid.encode()))

    def _device(self, function: str, key: object) -> Device | None:
        handle = ctypes.c_void_p()
        if not _call(self._library, function, key, ctypes.byref(handle)):
            return None
        return Device(self._library, handle)


def initialised(library: str = LIBRARY) -> Nvml | None:
    """NVML, open for as long as the process lives; None where there is no driver."""
    loaded = _loaded(library)
    return None if loaded is None else Nvml(loaded)


@contextmanager
def opened(library: str = LIBRARY) -> Iterator[Nvml | None]:
    """NVML for a moment; None where there is no driver."""
    loaded = _loaded(library)
    if loaded is None:
        yield None
        return
    try:
        yield Nvml(loaded)
    finally:
        _call(loaded, "nvmlShutdown")


def _loaded(library: str) -> Any:  # noqa: ANN401 - a library has any function
    try:
        loaded: Any = ctypes.CDLL(library)
    except OSError:
        return None
    return loaded if _call(loaded, "nvmlInit_v2") else None


def _call(library: Any, function: str, *arguments: object) -> bool:  # noqa: ANN401 - as above
    """Whether it was answered; an older library lacks newer functions."""
    found = getattr(library, function, None)
    return found is not None and found(*arguments) == _OK
