"""What a device ring asks of a device beyond tensors: a stream beside the learner's, and events.

The ring is written against `SideStream`, so that its order of copies, gathers and hand-overs can
be tried against a stand-in whose events come late, fail, or never come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor


class Event(Protocol):
    """A point in a stream."""

    def synchronize(self) -> None:
        """Block this thread until the stream has passed it."""
        ...


class SideStream(Protocol):
    """The device operations that the ring needs beyond tensors."""

    def use(self) -> AbstractContextManager[object]:
        """Issue work on the side stream within the block."""
        ...

    def record(self) -> Event:
        """An event after all work issued on the side stream."""
        ...

    def record_main(self) -> Event:
        """An event after all work issued on the calling thread's stream."""
        ...

    def wait(self, event: Event) -> None:
        """Work issued on the side stream from now on waits for `event`."""
        ...

    def hand_over(self, memory: Tensor, ready: Event) -> None:
        """`memory`, filled on the side stream until `ready`, is used on the caller's from now."""
        ...

    def pin(self, memory: Tensor) -> None:
        """Page-lock shared memory, so that copies from it need no staging."""
        ...

    def unpin(self) -> None:
        """Undo `pin`."""
        ...


class CudaSideStream:
    """A CUDA stream beside the current one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's stub lacks it
        self._pinned: list[Tensor] = []

    def use(self) -> AbstractContextManager[object]:
        """See `SideStream.use`."""
        return torch.cuda.stream(self._stream)

    def record(self) -> Event:
        """See `SideStream.record`."""
        event: Event = self._stream.record_event()
        return event

    def record_main(self) -> Event:
        """See `SideStream.record_main`."""
        event: Event = torch.cuda.current_stream(self._device).record_event()
        return event

    def wait(self, event: Event) -> None:
        """See `SideStream.wait`."""
        assert isinstance(event, torch.cuda.Event)
        self._stream.wait_event(event)

    def hand_over(self, memory: Tensor, ready: Event) -> None:
        """See `SideStream.hand_over`."""
        assert isinstance(ready, torch.cuda.Event)
        main = torch.cuda.current_stream(self._device)
        main.wait_event(ready)
        # Its memory is the side stream's: not to be given out again while the learner's works.
        memory.record_stream(main)

    def pin(self, memory: Tensor) -> None:
        """See `SideStream.pin`."""
        runtime = _cuda_runtime()
        nbytes = memory.numel() * memory.element_size()
        with torch.cuda.device(self._device):
            torch.cuda.check_error(runtime.cudaHostRegister(memory.data_ptr(), nbytes, 0))
        self._pinned.append(memory)

    def unpin(self) -> None:
        """See `SideStream.unpin`."""
        while self._pinned:
            memory = self._pinned.pop()
            torch.cuda.check_error(_cuda_runtime().cudaHostUnregister(memory.data_ptr()))


def _cuda_runtime() -> Any:  # noqa: ANN401  # a C module
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch's stub lacks it
