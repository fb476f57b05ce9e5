"""The ranks of a run as the learner loop sees them; a single rank needs no process group."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import torch
import torch.distributed as dist

from drivetrain_trainer.runtime.faults import RankLostError, StopRequestedError

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.doorbell import Interrupt

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
_LOOK_S: Final = 0.1
"""How often a stop is looked for while the others are waited for."""


def named(failure: BaseException) -> BaseException:
    """A failed collective by its own name; any other failure as it is.

    NCCL's failures have a class of their own; gloo raises plain RuntimeError, with the place in
    its sources in front.
    """
    gloo = isinstance(failure, RuntimeError) and "/gloo/transport/" in str(failure)
    if not gloo and not isinstance(failure, dist.DistError):
        return failure
    return RankLostError(str(failure).rsplit("] ", maxsplit=1)[-1])


@dataclass(frozen=True)
class Ranks:
    """This rank among all; `group` is None where it is alone."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    group: dist.ProcessGroup | None = None

    @property
    def leads(self) -> bool:
        """Whether this rank owns terminal, backends and files."""
        return self.rank == 0

    def broadcast(self, values: list[float]) -> list[float]:
        """Rank 0's values on every rank (float64)."""
        if self.group is None:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(tensor, src=0, group=self.group)
        return [float(value) for value in tensor]

    def broadcast_text(self, text: str) -> str:
        """Rank 0's text on every rank."""
        if self.group is None:
            return text
        box = [text]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def greatest(self, value: int) -> int:
        """The greatest value of any rank."""
        if self.group is None:
            return value
        tensor = torch.tensor([value], dtype=torch.int64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.group)
        return int(tensor.item())

    def barrier(self) -> None:
        """Wait for every rank."""
        if self.group is not None:
            dist.barrier(group=self.group)

    def close(self) -> None:
        """Leave the process group."""
        if self.group is not None:
            dist.destroy_process_group()


def join_ranks(device: torch.device, interrupt: Interrupt | None = None) -> Ranks:
    """The ranks that torchrun's environment names; nccl for CUDA gradients, gloo for the rest.

    Host values (`broadcast`, `greatest`) travel by gloo on every device.

    Args:
        device: Of the gradients.
        interrupt: Ends the wait for the other ranks.

    Raises:
        StopRequestedError: `interrupt` was set.
        DistError: the others did not come within `COLLECTIVE_TIMEOUT`.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if world_size == 1:
        return Ranks(rank=rank, world_size=1, local_rank=local_rank)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    _join(backend, interrupt)
    return Ranks(rank=rank, world_size=world_size, local_rank=local_rank, group=dist.group.WORLD)


def _join(backend: str, interrupt: Interrupt | None) -> None:
    """Meet the others in a thread of its own: no signal's handler runs within the call."""
    failed: list[BaseException] = []

    def meet() -> None:
        try:
            dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT)
        except BaseException as error:  # noqa: BLE001  # raised below, in the caller's thread
            failed.append(error)

    thread = threading.Thread(target=meet, name="join ranks", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK_S)
        if interrupt is not None and interrupt.is_set() and thread.is_alive():
            raise StopRequestedError
    if failed:
        raise failed[0]
