"""A stand-in for NVIDIA's management library, as ctypes would hand it out."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

NOT_SUPPORTED: Final = 3
GONE: Final = 15


@dataclass
class StandInDevice:
    """A device; what is None the driver does not tell of it."""

    name: str | None = None
    uuid: str | None = None
    total: int | None = None
    reserved: int | None = None
    free: int | None = None
    used: int | None = None
    bus_width: int | None = None
    memory_clock: int | None = None
    processes: Mapping[int, int] | None = None
    gone: bool = False


@dataclass
class StandInNvml:
    """A library with these devices; `without` names functions that an older one lacks."""

    devices: list[StandInDevice] = field(default_factory=list)
    starts: bool = True
    counts: bool = True
    without: frozenset[str] = frozenset()
    open: int = 0

    def __getattr__(self, name: str) -> Any:
        if name in self.without or not name.startswith("nvml"):
            raise AttributeError(name)
        return getattr(self, f"_{name}")

    def _nvmlInit_v2(self) -> int:  # noqa: N802 - NVML's own names, here and below
        self.open += self.starts
        return 0 if self.starts else 9

    def _nvmlShutdown(self) -> int:  # noqa: N802
        self.open -= 1
        return 0

    def _nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self.devices)
        return 0 if self.counts else NOT_SUPPORTED

    def _nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:  # noqa: N802
        handle._obj.value = index + 1
        return GONE if self.devices[index].gone else 0

    def _nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> int:  # noqa: N802
        for index, device in enumerate(self.devices):
            if device.uuid == uuid.value.decode():
                handle._obj.value = index + 1
                return 0
        return 6

    def _nvmlDeviceGetName(self, handle: Any, buffer: Any, _: Any) -> int:  # noqa: N802
        return _text(self._of(handle).name, buffer)

    def _nvmlDeviceGetUUID(self, handle: Any, buffer: Any, _: Any) -> int:  # noqa: N802
        return _text(self._of(handle).uuid, buffer)

    def _nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:  # noqa: N802
        device, told = self._of(handle), False
        for key in ("total", "free", "used"):
            if getattr(device, key) is not None:
                setattr(memory._obj, key, getattr(device, key))
                told = True
        return 0 if told else NOT_SUPPORTED

    def _nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> int:  # noqa: N802
        device = self._of(handle)
        if device.total is None or device.reserved is None:
            return NOT_SUPPORTED
        if memory._obj.version != ctypes.sizeof(memory._obj) | 0x2000000:
            return 25  # NVML_ERROR_ARGUMENT_VERSION_MISMATCH
        memory._obj.total, memory._obj.reserved = device.total, device.reserved
        return 0

    def _nvmlDeviceGetMemoryBusWidth(self, handle: Any, width: Any) -> int:  # noqa: N802
        return _number(self._of(handle).bus_width, width)

    def _nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: Any, clock: Any) -> int:  # noqa: N802
        return _number(self._of(handle).memory_clock, clock) if kind.value == 2 else NOT_SUPPORTED

    def _nvmlDeviceGetComputeRunningProcesses_v3(  # noqa: N802
        self, handle: Any, count: Any, table: Any
    ) -> int:
        processes = self._of(handle).processes
        if processes is None:
            return NOT_SUPPORTED
        for index, (pid, used) in enumerate(processes.items()):
            table[index].pid, table[index].used = pid, used
        count._obj.value = len(processes)
        return 0

    def _of(self, handle: Any) -> StandInDevice:
        return self.devices[handle.value - 1]


def _text(text: str | None, buffer: Any) -> int:
    if text is None:
        return NOT_SUPPORTED
    buffer.value = text.encode()
    return 0


def _number(value: int | None, target: Any) -> int:
    if value is None:
        return NOT_SUPPORTED
    target._obj.value = value
    return 0
