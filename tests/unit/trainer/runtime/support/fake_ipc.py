"""A stand-in for a device that shares memory and events: host memory, opened by handle.

Works between processes as well: a handle names the maker's descriptor below ``/proc``, so
that, as on a device, it opens nothing once its maker has gone.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field

import torch
from torch import Tensor

from drivetrain_trainer.runtime.cuda_ipc import DeviceError

CUDA = torch.device("cuda", 0)


def _made(nbytes: int) -> tuple[mmap.mmap, bytes]:
    fd = os.memfd_create("fake-device")
    os.ftruncate(fd, nbytes)
    return mmap.mmap(fd, nbytes), f"/proc/{os.getpid()}/fd/{fd}".encode()


def _opened(handle: bytes, nbytes: int) -> mmap.mmap:
    try:
        fd = os.open(handle, os.O_RDWR)
    except OSError as error:
        raise DeviceError(f"fakeIpcOpenMemHandle: {error.strerror}") from error
    try:
        return mmap.mmap(fd, nbytes)
    finally:
        os.close(fd)


class FakeEvent:
    """Counts how often either process has recorded it."""

    def __init__(self, device: FakeIpc, name: int, memory: mmap.mmap, handle: bytes) -> None:
        self._device = device
        self._name = name
        self._words = memoryview(memory).cast("q")
        self._handle = handle

    @property
    def records(self) -> int:
        return self._words[0]

    def record(self) -> None:
        self._words[0] += 1
        self._device.log.append(("record", self._name))

    def wait(self) -> None:
        self._device.log.append(("wait", self._name))
        self._device.waited[self._name] = self.records

    def handle(self) -> bytes:
        return self._handle


@dataclass
class FakeIpc:
    """See the module's docstring."""

    device: torch.device = CUDA
    log: list[tuple[str, int]] = field(default_factory=list)
    """What this process did to events, numbered as they were made: 3 a slot."""
    waited: dict[int, int] = field(default_factory=dict)
    """By event, the record that was waited for last."""
    refuse_event: int | None = None
    """The event of this number cannot be made."""
    barriers: int = 0
    events: int = 0

    def allocate(self, floats: int) -> tuple[Tensor, bytes]:
        self.log.append(("allocate", floats))
        memory, handle = _made(4 * floats)
        return torch.frombuffer(memory, dtype=torch.float32), handle

    def open(self, handle: bytes, floats: int) -> Tensor:
        return torch.frombuffer(_opened(handle, 4 * floats), dtype=torch.float32)

    def make_event(self) -> FakeEvent:
        if self.events == self.refuse_event:
            raise DeviceError("fakeEventCreate: out of memory (2)")
        memory, handle = _made(8)
        return self._event(memory, handle)

    def open_event(self, handle: bytes) -> FakeEvent:
        return self._event(_opened(handle, 8), handle)

    def synchronize(self) -> None:
        self.barriers += 1

    def buffer(self, *shape: int) -> Tensor:
        return torch.zeros(shape)

    def _event(self, memory: mmap.mmap, handle: bytes) -> FakeEvent:
        self.events += 1
        return FakeEvent(self, self.events - 1, memory, handle)

    def __getstate__(self) -> dict[str, object]:
        return {"device": self.device}

    def __setstate__(self, state: dict[str, torch.device]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a received object is built like a new one
