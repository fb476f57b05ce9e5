"""Where the tensors of an inference ring lie, and what orders their use by two processes.

The protocol of the ring (ticks, epochs, bells) is one whatever the storage. Host memory is
ordered by the bells; on a device, work is only issued when a bell rings, so that each slot
also has *fences*: points in one side's stream for which the other side's stream waits. No
process waits for a fence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch
from torch import Tensor

from drivetrain_trainer.runtime.shared_memory import MemoryPlan, SharedMemory

if TYPE_CHECKING:
    from collections.abc import Callable


class Fence(IntEnum):
    """Points in the streams of both sides; each slot has one of each."""

    REQUESTED = 0
    """The collector has written observations."""
    PLACED = 1
    """The learner has written actions."""
    RELEASED = 2
    """The learner has read the observations: they may be written anew."""


@dataclass(frozen=True)
class RingTensors:
    """All rows of the ring; a slot is a range of them."""

    observation: Tensor
    """(N, o) float32."""
    done: Tensor
    """(N,) float32."""
    action: Tensor
    """(N, a) float32."""

    def part(self, rows: slice) -> RingTensors:
        """Views of a range of rows."""
        return RingTensors(self.observation[rows], self.done[rows], self.action[rows])

    def beside(self, buffer: Callable[..., Tensor]) -> RingTensors:
        """Tensors of the same shapes in other memory, made by ``buffer(*shape)``."""
        return RingTensors(
            buffer(*self.observation.shape), buffer(*self.done.shape), buffer(*self.action.shape)
        )


class RingShape:
    """Sizes of a ring's tensors and their places in one block of memory."""

    def __init__(self, num_envs: int, observation_dim: int, action_dim: int) -> None:
        self.num_envs = num_envs
        self.observation_dim = observation_dim
        self.action_dim = action_dim
        plan = MemoryPlan()
        self._offsets = (
            plan.floats(num_envs, observation_dim),
            plan.floats(num_envs),
            plan.floats(num_envs, action_dim),
        )
        self.nbytes = plan.nbytes

    def tensors(self, block: Tensor) -> RingTensors:
        """Views of a block of `nbytes` bytes, given as float32 (nbytes / 4,)."""
        observation, done, action = (offset // block.element_size() for offset in self._offsets)
        envs = self.num_envs
        return RingTensors(
            observation=block[observation:][: envs * self.observation_dim].view(envs, -1),
            done=block[done:][:envs],
            action=block[action:][: envs * self.action_dim].view(envs, -1),
        )

    def __reduce__(self) -> tuple[type[RingShape], tuple[int, int, int]]:
        return RingShape, (self.num_envs, self.observation_dim, self.action_dim)


class RingStorage(Protocol):
    """Tensors that both processes see; sent to the other one through a `Channel`."""

    device: torch.device
    host_bytes: int
    """Bytes of host memory under it."""

    @property
    def ipc_events(self) -> int:
        """Events that both processes hold; 0 in host memory."""
        ...

    def tensors(self) -> RingTensors:
        """All rows; each call returns new views."""
        ...

    def record(self, fence: Fence, slot: int) -> None:
        """Put a slot's fence behind all work that this side has issued."""
        ...

    def wait(self, fence: Fence, slot: int) -> None:
        """Work that this side issues from now on comes after the fence's latest record."""
        ...

    def barrier(self) -> None:
        """Block this thread until all work that it has issued is done."""
        ...

    def buffer(self, *shape: int) -> Tensor:
        """Float32 host memory from and to which copies need no staging."""
        ...

    def close(self) -> None:
        """Let go of it; a second time does nothing. Views handed out before stay valid."""
        ...


HOST: Final = torch.device("cpu")


class HostStorage:
    """Tensors in memory that both processes map."""

    def __init__(self, shape: RingShape, memory: SharedMemory | None = None) -> None:
        self.device = HOST
        self.host_bytes = shape.nbytes
        self._shape = shape
        self._memory = memory or SharedMemory.create(shape.nbytes, "inference")

    @property
    def ipc_events(self) -> int:
        """See `RingStorage.ipc_events`."""
        return 0

    def tensors(self) -> RingTensors:
        """See `RingStorage.tensors`."""
        floats = self._shape.nbytes // torch.float32.itemsize
        return self._shape.tensors(self._memory.tensor((floats,), torch.float32))

    def record(self, fence: Fence, slot: int) -> None:
        """See `RingStorage.record`: writes are done when they return, and bells order them."""

    def wait(self, fence: Fence, slot: int) -> None:
        """See `RingStorage.wait`."""

    def barrier(self) -> None:
        """See `RingStorage.barrier`."""

    def buffer(self, *shape: int) -> Tensor:
        """See `RingStorage.buffer`."""
        return torch.zeros(shape)

    def close(self) -> None:
        """See `RingStorage.close`."""
        self._memory.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"shape": self._shape, "memory": self._memory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a received object is built like a new one
