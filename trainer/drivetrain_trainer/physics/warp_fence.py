"""Order between a backend's launches, Torch's operations, and the host."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch
import warp as wp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from torch import Tensor


class Fence(Protocol):
    """Where launches run, and how the host learns that they are done."""

    @property
    def asynchronous(self) -> bool:
        """Whether launches return before they are done."""
        ...

    def running(self) -> AbstractContextManager[None]:
        """Launches within come after what Torch was told to do to the same tensors."""
        ...

    def publish(self, source: Tensor, host: Tensor) -> None:
        """Copy `source` to `host`; Torch's next operations come after all launches so far."""
        ...

    def wait(self) -> None:
        """Have the host wait for the latest `publish`, not for what Torch was told since."""
        ...


class HostFence:
    """The CPU's: a launch returns when it is done."""

    asynchronous = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """See `Fence.running`."""
        with wp.ScopedDevice("cpu"):
            yield

    def publish(self, source: Tensor, host: Tensor) -> None:
        """See `Fence.publish`."""
        host.copy_(source)

    def wait(self) -> None:
        """See `Fence.wait`: there is nothing to wait for."""


class StreamFence:
    """A CUDA device's: a stream of physics' own, tied to Torch's current one by events.

    CUDA graphs cannot be captured on the legacy default stream, which is Torch's current one
    as a rule.
    """

    asynchronous = True

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._stream = wp.Stream(device)
        self._torch_stream = wp.stream_to_torch(self._stream)
        self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]  # Torch has no types here

    @contextmanager
    def running(self) -> Iterator[None]:
        """See `Fence.running`."""
        self._torch_stream.wait_stream(torch.cuda.current_stream(self._device))
        with wp.ScopedStream(self._stream, sync_enter=False):
            yield

    def publish(self, source: Tensor, host: Tensor) -> None:
        """See `Fence.publish`; `host` is pinned memory."""
        with torch.cuda.stream(self._torch_stream):
            host.copy_(source, non_blocking=True)
            self._done.record(self._torch_stream)
        torch.cuda.current_stream(self._device).wait_event(self._done)

    def wait(self) -> None:
        """See `Fence.wait`."""
        self._done.synchronize()
