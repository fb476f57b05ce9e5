"""A few device numbers as the host may know them without making it wait."""

from __future__ import annotations

import torch
from torch import Tensor


class HostMirror:
    """The latest published vector whose copy has certainly arrived.

    On a CPU that is the one just published. On CUDA it is the one before, whose copy was
    over long before the next was published; every rank reads the same age.

    Args:
        size: Elements of the vector.
        device: Where it is published from.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        slots = 2 if self._cuda else 1
        self._slots = [torch.zeros(size, pin_memory=self._cuda) for _ in range(slots)]
        self._arrived: list[torch.cuda.Event | None] = [None] * slots
        self._newest = 0

    def publish(self, values: Tensor) -> None:
        """Send `values` (size,) float32 on their way to the host."""
        self._newest = (self._newest + 1) % len(self._slots)
        self._slots[self._newest].copy_(values, non_blocking=True)
        if self._cuda:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no stub
            event.record()
            self._arrived[self._newest] = event

    def read(self) -> list[float]:
        """The values of the last publication but the lag; zeros before there is one."""
        slot = (self._newest + 1) % len(self._slots)
        event = self._arrived[slot]
        if event is not None:
            event.synchronize()
        return [float(value) for value in self._slots[slot]]
