"""Device memory and events that two processes share, by CUDA's (or HIP's) own handles.

Torch's way of sending CUDA tensors keeps its counters in a named file of ``/dev/shm``, which
outlives a killed process. Handles have no names: what they stand for goes with the process
that made it. The memory is an allocation of its own, beside Torch's caching allocator, since
a handle stands for a whole allocation and opens all of it.
"""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

import torch
from torch import Tensor

HANDLE_BYTES: Final = 64
"""Of cudaIpcMemHandle_t and hipIpcMemHandle_t."""
_LAZY_PEER_ACCESS: Final = 1
"""cudaIpcMemLazyEnablePeerAccess, the only flag that opening knows."""
_LIBRARIES: Final = {"libcudart": "cuda", "libamdhip64": "hip"}
"""Start of a runtime library's file name -> start of its functions' names."""
_BLOCK_BYTES: Final = 2 << 20
"""The driver hands out smaller allocations from one block, all of which a handle would open."""


class DeviceError(RuntimeError):
    """The device's runtime refused a call."""


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


class DeviceRuntime:
    """Five calls of the runtime library that Torch has loaded, on the current device."""

    def __init__(self, library: Any, prefix: str) -> None:  # noqa: ANN401  # any function
        """Take a library whose functions begin with `prefix`."""
        self._prefix = prefix
        self._library = library
        self._error_string = getattr(library, f"{prefix}GetErrorString")
        self._error_string.restype = ctypes.c_char_p

    @classmethod
    def loaded(cls, maps: Path = Path("/proc/self/maps")) -> Self:
        """The one in this process, which a second copy would know nothing of.

        Raises:
            DeviceError: there is none: Torch is built for the CPU alone.
        """
        for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
            path = line.partition("/")[2].strip()
            for start, prefix in _LIBRARIES.items():
                if Path(path).name.startswith(start) and ".so" in path:
                    return cls(ctypes.CDLL(f"/{path}"), prefix)
        raise DeviceError(f"this build of Torch has loaded none of {', '.join(_LIBRARIES)}")

    def allocate(self, nbytes: int) -> int:
        """Address of new memory, not zeroed."""
        pointer = ctypes.c_void_p()
        self._call("Malloc", ctypes.byref(pointer), ctypes.c_size_t(nbytes), what=f"{nbytes} bytes")
        return pointer.value or 0

    def free(self, pointer: int) -> None:
        """Give memory back."""
        self._call("Free", ctypes.c_void_p(pointer))

    def handle(self, pointer: int) -> bytes:
        """A handle with which another process opens this memory."""
        handle = _Handle()
        self._call("IpcGetMemHandle", ctypes.byref(handle), ctypes.c_void_p(pointer))
        return bytes(handle)

    def open(self, handle: bytes) -> int:
        """Address, here, of another process's memory."""
        pointer = ctypes.c_void_p()
        flags = ctypes.c_uint(_LAZY_PEER_ACCESS)
        self._call(
            "IpcOpenMemHandle", ctypes.byref(pointer), _Handle.from_buffer_copy(handle), flags
        )
        return pointer.value or 0

    def close(self, pointer: int) -> None:
        """Undo `open`."""
        self._call("IpcCloseMemHandle", ctypes.c_void_p(pointer))

    def _call(self, name: str, *arguments: object, what: str = "") -> None:
        code = getattr(self._library, f"{self._prefix}{name}")(*arguments)
        if code:
            reason = self._error_string(code).decode(errors="replace")
            call = f"{self._prefix}{name}" + (f" of {what}" if what else "")
            raise DeviceError(f"{call}: {reason} ({code})")


class IpcEvent(Protocol):
    """A point in a stream; both processes may record it and let their streams wait for it."""

    def record(self) -> None:
        """Behind all work issued on this thread's stream."""
        ...

    def wait(self) -> None:
        """This thread's stream goes on once the latest record has passed."""
        ...

    def handle(self) -> bytes:
        """A handle with which another process opens it."""
        ...


class IpcDevice(Protocol):
    """What a ring needs of a device; picklable, the handles it gives are opened elsewhere."""

    @property
    def device(self) -> torch.device:
        """With its index."""
        ...

    def allocate(self, floats: int) -> tuple[Tensor, bytes]:
        """New float32 memory (floats,), zeroed, and its handle."""
        ...

    def open(self, handle: bytes, floats: int) -> Tensor:
        """Another process's memory."""
        ...

    def make_event(self) -> IpcEvent:
        """A new event."""
        ...

    def open_event(self, handle: bytes) -> IpcEvent:
        """Another process's event."""
        ...

    def synchronize(self) -> None:
        """Block until this thread's stream has done all its work."""
        ...

    def buffer(self, *shape: int) -> Tensor:
        """Page-locked float32 host memory, zeroed."""
        ...


@dataclass(frozen=True)
class CudaDevice:
    """A CUDA device, NVIDIA's or AMD's, as both processes number it."""

    index: int

    @property
    def device(self) -> torch.device:
        """See `IpcDevice.device`."""
        return torch.device("cuda", self.index)

    def allocate(self, floats: int) -> tuple[Tensor, bytes]:
        """See `IpcDevice.allocate`.

        Raises:
            DeviceError: out of memory, or the device shares none.
        """
        with self._current():
            memory = _DeviceMemory.allocate(DeviceRuntime.loaded(), floats)
            block = memory.tensor(self.device).zero_()
            handle = memory.handle()
            self.synchronize()
        return block, handle

    def open(self, handle: bytes, floats: int) -> Tensor:
        """See `IpcDevice.open`.

        Raises:
            DeviceError: its maker is gone, or this process sees other devices.
        """
        with self._current():
            memory = _DeviceMemory.open(DeviceRuntime.loaded(), handle, floats)
            return memory.tensor(self.device)

    def make_event(self) -> IpcEvent:
        """See `IpcDevice.make_event`."""
        with self._current():
            event = torch.cuda.Event(interprocess=True)  # type: ignore[no-untyped-call]  # torch's stub lacks it
        return _CudaEvent(event, self.device)

    def open_event(self, handle: bytes) -> IpcEvent:
        """See `IpcDevice.open_event`."""
        with self._current():
            event = torch.cuda.Event.from_ipc_handle(self.device, handle)  # type: ignore[no-untyped-call]  # torch's stub lacks it
        return _CudaEvent(event, self.device)

    def synchronize(self) -> None:
        """See `IpcDevice.synchronize`."""
        torch.cuda.current_stream(self.device).synchronize()

    def buffer(self, *shape: int) -> Tensor:
        """See `IpcDevice.buffer`."""
        return torch.zeros(shape, pin_memory=True)

    def _current(self) -> contextlib.AbstractContextManager[object]:
        """Make it the current device; the first use starts CUDA in this process."""
        torch.cuda.init()  # type: ignore[no-untyped-call]  # torch's stub lacks it
        return torch.cuda.device(self.device)


@dataclass(frozen=True)
class _CudaEvent:
    event: Any
    device: torch.device

    def record(self) -> None:
        self.event.record(torch.cuda.current_stream(self.device))

    def wait(self) -> None:
        self.event.wait(torch.cuda.current_stream(self.device))

    def handle(self) -> bytes:
        with torch.cuda.device(self.device):
            return bytes(self.event.ipc_handle())


class _DeviceMemory:
    """An allocation, own or opened; given back with the last tensor over it."""

    def __init__(self, runtime: DeviceRuntime, pointer: int, floats: int, *, own: bool) -> None:
        self._runtime = runtime
        self._pointer = pointer
        self._floats = floats
        self._own = own

    @classmethod
    def allocate(cls, runtime: DeviceRuntime, floats: int) -> Self:
        nbytes = floats * torch.float32.itemsize
        pointer = runtime.allocate(-(-nbytes // _BLOCK_BYTES) * _BLOCK_BYTES)
        return cls(runtime, pointer, floats, own=True)

    @classmethod
    def open(cls, runtime: DeviceRuntime, handle: bytes, floats: int) -> Self:
        return cls(runtime, runtime.open(handle), floats, own=False)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """What Torch makes a tensor of without a copy; the tensor keeps this object alive."""
        return {
            "shape": (self._floats,),
            "typestr": "<f4",
            "data": (self._pointer, False),
            "strides": None,
            "version": 3,
        }

    def tensor(self, device: torch.device) -> Tensor:
        return torch.as_tensor(self, device=device)

    def handle(self) -> bytes:
        return self._runtime.handle(self._pointer)

    def __del__(self) -> None:
        # A device that failed refuses this as well, and takes the memory with the process.
        with contextlib.suppress(DeviceError):
            (self._runtime.free if self._own else self._runtime.close)(self._pointer)
