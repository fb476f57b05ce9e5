"""The tensors of an inference ring in a device's memory.

The learner makes them and sends handles; the collector opens those as it receives the ring.
Three events a slot are the fences between both processes' streams: see `Fence`. The learner
lets go of them only once the collector has ended, since an event must not be used after its
maker has given it up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from drivetrain_trainer.runtime.cuda_ipc import CudaDevice
from drivetrain_trainer.runtime.ring_storage import Fence

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.runtime.cuda_ipc import IpcDevice, IpcEvent
    from drivetrain_trainer.runtime.ring_storage import RingShape, RingTensors


@dataclass(frozen=True)
class RingHandles:
    """How another process finds the ring's memory and events."""

    memory: bytes
    events: tuple[tuple[bytes, ...], ...]
    """(slots, fences)."""


class CudaStorage:
    """Device memory and events of a ring; see `RingStorage`."""

    def __init__(
        self, ipc: IpcDevice, shape: RingShape, slots: int, *, handles: RingHandles | None = None
    ) -> None:
        """Make them, or, where there are handles, open another process's.

        Args:
            ipc: The device.
            shape: Of the tensors.
            slots: Of the ring, each with its own fences.
            handles: Of the process that made them.

        Raises:
            DeviceError: the device refused.
        """
        self.device = ipc.device
        self.host_bytes = 0
        self._ipc = ipc
        self._shape = shape
        self._slots = slots
        floats = shape.nbytes // torch.float32.itemsize
        self._block: Tensor | None
        self._events: list[list[IpcEvent]]
        if handles is None:
            self._block, memory = ipc.allocate(floats)
            self._events = [[ipc.make_event() for _ in Fence] for _ in range(slots)]
            exported = tuple(tuple(event.handle() for event in slot) for slot in self._events)
            handles = RingHandles(memory, exported)
        else:
            self._block = ipc.open(handles.memory, floats)
            self._events = [[ipc.open_event(given) for given in slot] for slot in handles.events]
        self._handles = handles

    @classmethod
    def on(cls, device: torch.device, shape: RingShape, slots: int) -> CudaStorage:
        """New memory on a CUDA device, given with its index."""
        return cls(CudaDevice(device.index), shape, slots)

    @property
    def ipc_events(self) -> int:
        """See `RingStorage.ipc_events`."""
        return len(Fence) * self._slots

    def tensors(self) -> RingTensors:
        """See `RingStorage.tensors`."""
        if self._block is None:
            raise ValueError("inference ring is closed")
        return self._shape.tensors(self._block)

    def record(self, fence: Fence, slot: int) -> None:
        """See `RingStorage.record`."""
        self._events[slot][fence].record()

    def wait(self, fence: Fence, slot: int) -> None:
        """See `RingStorage.wait`; a fence that was never recorded holds nothing up."""
        self._events[slot][fence].wait()

    def barrier(self) -> None:
        """See `RingStorage.barrier`."""
        self._ipc.synchronize()

    def buffer(self, *shape: int) -> Tensor:
        """See `RingStorage.buffer`."""
        return self._ipc.buffer(*shape)

    def close(self) -> None:
        """See `RingStorage.close`."""
        block, self._block = self._block, None
        try:
            if block is not None:
                self._ipc.synchronize()
        finally:
            self._events = []

    def __getstate__(self) -> dict[str, Any]:
        return {
            "ipc": self._ipc,
            "shape": self._shape,
            "slots": self._slots,
            "handles": self._handles,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a received object is built like a new one
