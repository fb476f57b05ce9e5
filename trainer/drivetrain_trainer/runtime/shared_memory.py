"""Memory that two processes map, without a name anywhere (memfd).

The pages are charged to the memory cgroup, not to ``/dev/shm``, and go with the last process
that maps them, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import math
import mmap
import os
from typing import Any, Final, Self

import torch
from torch import Tensor

from drivetrain_trainer.runtime.descriptors import Descriptor

CACHE_LINE: Final = 64
"""Bytes; regions start on one, so that two writers never share one."""
WORD: Final = 8
"""Bytes of a word: aligned, written and read whole by the processor."""
_MFD_NOEXEC_SEAL: Final = 0x8
"""Of <linux/memfd.h>."""
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class MemoryPlan:
    """Hands out offsets of regions, one after the other, each on a cache line of its own."""

    def __init__(self) -> None:
        self.nbytes = 0

    def reserve(self, nbytes: int) -> int:
        """Offset of a region of `nbytes` bytes."""
        offset = self.nbytes
        self.nbytes += -(-nbytes // CACHE_LINE) * CACHE_LINE
        return offset

    def words(self, count: int) -> int:
        """Offset of a region of `count` words."""
        return self.reserve(count * WORD)

    def floats(self, *shape: int) -> int:
        """Offset of a region for a float32 tensor of this shape."""
        return self.reserve(math.prod(shape) * 4)


class SharedMemory:
    """A sealed, zeroed memory file, mapped; sent to the other process through a `Channel`.

    The size is sealed: no process can shrink it under another's mapping (a bus error) or
    grow it past its budget.
    """

    def __init__(self, descriptor: Descriptor, nbytes: int, label: str) -> None:
        self.nbytes = nbytes
        self.label = label
        self._descriptor = descriptor
        self._map: mmap.mmap | None = self._mapped()

    @classmethod
    def create(cls, nbytes: int, label: str) -> Self:
        """New memory, all zero. Pages are taken from the system as they are first touched.

        Args:
            nbytes: size, at least 1.
            label: shown in ``/proc/<pid>/maps`` as ``memfd:drivetrain-<label>``.
        """
        if nbytes < 1:
            raise ValueError(f"shared memory {label!r}: {nbytes} bytes, at least 1")
        fd = _memory_file(f"drivetrain-{label}")
        descriptor = Descriptor(fd)
        os.ftruncate(fd, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return cls(descriptor, nbytes, label)

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype, offset: int = 0) -> Tensor:
        """A tensor over these bytes; it keeps the mapping alive for as long as it lives.

        Args:
            shape: at least one element.
            dtype: of the elements.
            offset: of the first element, bytes.
        """
        count = math.prod(shape)
        end = offset + count * dtype.itemsize
        if count < 1 or offset < 0 or end > self.nbytes:
            raise ValueError(
                f"shared memory {self.label!r}: bytes {offset} to {end} of {self.nbytes}"
            )
        flat = torch.frombuffer(self._open(), dtype=dtype, count=count, offset=offset)
        return flat.view(shape)

    def words(self, offset: int, count: int) -> memoryview:
        """`count` signed 64-bit words from `offset` on: plain integers, cheap to get and set."""
        if offset % WORD:
            raise ValueError(f"shared memory {self.label!r}: words at {offset}, not aligned")
        return self.octets(offset, count * WORD).cast("q")

    def octets(self, offset: int, count: int) -> memoryview:
        """`count` bytes from `offset` on."""
        end = offset + count
        if count < 1 or offset < 0 or end > self.nbytes:
            raise ValueError(
                f"shared memory {self.label!r}: bytes {offset} to {end} of {self.nbytes}"
            )
        return memoryview(self._open())[offset:end]

    def close(self) -> None:
        """Close the file and drop this mapping; a second time does nothing.

        Views handed out before stay valid: the pages are unmapped with the last of them.
        """
        self._descriptor.close()
        self._map = None

    def _mapped(self) -> mmap.mmap:
        fd = self._descriptor.fileno()
        size = os.fstat(fd).st_size
        if size != self.nbytes or fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise ValueError(
                f"shared memory {self.label!r}: {self.nbytes} sealed bytes expected, {size} found"
            )
        return mmap.mmap(fd, self.nbytes)

    def _open(self) -> mmap.mmap:
        if self._map is None:
            raise ValueError(f"shared memory {self.label!r} is closed")
        return self._map

    def __getstate__(self) -> dict[str, Any]:
        return {"descriptor": self._descriptor, "nbytes": self.nbytes, "label": self.label}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a received object is built like a new one


def _memory_file(name: str) -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        # Hosts may insist (vm.memfd_noexec) that memory files can never be executed.
        return os.memfd_create(name, flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return os.memfd_create(name, flags)  # before Linux 6.3
