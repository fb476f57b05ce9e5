"""The ranks of a run as the learner loop sees them; a single rank needs no process group."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from drivetrain_trainer.runtime.faults import RankLostError

COLLECTIVE_TIMEOUT = timedelta(minutes=30)


def named(failure: Exception) -> Exception:
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


def join_ranks(device: torch.device) -> Ranks:
    """The ranks that torchrun's environment names; nccl for CUDA gradients, gloo for the rest.

    Host values (`broadcast`, `greatest`) travel by gloo on every device.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if world_size == 1:
        return Ranks(rank=rank, world_size=1, local_rank=local_rank)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT)
    return Ranks(rank=rank, world_size=world_size, local_rank=local_rank, group=dist.group.WORLD)
