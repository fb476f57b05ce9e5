"""One flat all-reduce for each optimizer step, with everything else that ranks must agree on.

The buffer of one reduction, float32:

    [gradient n | loss sentinels, a slot a rank | stop | statistics, a slot a rank]

All of it is summed. Where a rank writes a slot of its own and zeros into the others', the
sum is a gather, exact to the bit. Ranks then read the same buffer, so what they compute
from it is the same to the bit as well.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from drivetrain_trainer.tracing import NULL_TRACER

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed import ProcessGroup

    from drivetrain_trainer.tracing import Tracer

_PIECES = 2
"""Float32 pieces of a float64: 48 bits of mantissa."""


class GradientReducer:
    """The gradient of one parameter vector, summed over the ranks.

    Without a group nothing is sent or copied: the buffer is what was written.

    Args:
        size: Elements of the gradient.
        device: Of the parameters.
        group: The ranks; None for a single one.
        statistics: Elements (float64) of one rank's statistics, exchanged on request.

    Attributes:
        gradient: (size,) float32, written before `reduce`, holding the ranks' sum after it.
        world_size: Ranks.
        rank: This one.
        timer: Time and number of the all-reduces.
    """

    def __init__(
        self,
        size: int,
        *,
        device: torch.device,
        group: ProcessGroup | None = None,
        statistics: int = 0,
    ) -> None:
        self._group = group
        self.world_size = dist.get_world_size(group) if group is not None else 1
        self.rank = dist.get_rank(group) if group is not None else 0
        slots = self.world_size * statistics * _PIECES if group is not None else 0
        self._message = torch.zeros(size + self.world_size + 1 + slots, device=device)
        self.gradient: Tensor = self._message[:size]
        self.sentinels: Tensor = self._message[size : size + self.world_size]
        self._agreement: Tensor = self._message[size + self.world_size :]
        packed = self._agreement[1:]
        self._packed = packed.view(self.world_size if slots else 0, _PIECES, statistics)
        self._statistics: Tensor | None = None
        self._riding = False
        self.timer = SyncTimer(device)

    def attach(self, *, stop_requested: bool, statistics: Tensor | None = None) -> None:
        """Let the stop flag, and statistics (s,) float64, ride along with the next reduction."""
        self._agreement.zero_()
        if stop_requested:
            self._agreement[:1].fill_(1.0)
        if statistics is not None and self._group is not None:
            _pack(statistics, self._packed[self.rank])
        self._statistics = statistics
        self._riding = True

    def reduce(self, loss: Tensor) -> None:
        """Sum the gradient over the ranks, with a sentinel of each rank's `loss` (0-dim).

        A sentinel is 0, or NaN where that rank's loss was not finite.
        """
        if self._group is not None:
            self.sentinels.zero_()
        torch.mul(loss.detach(), 0.0, out=self.sentinels[self.rank])
        riding, self._riding = self._riding, False
        end = None if riding else -self._agreement.numel()
        self._all_reduce(self._message[:end])

    def exchange(self) -> None:
        """Sum what is attached alone, without a gradient."""
        self._riding = False
        self._all_reduce(self._agreement)

    @property
    def stop(self) -> Tensor:
        """(1,) how many ranks asked to stop, as of the last attachment reduced."""
        return self._agreement[:1]

    def statistics(self) -> Tensor | None:
        """(ranks, s) float64, every rank's as last attached and reduced."""
        if self._statistics is None:
            return None
        if self._group is None:
            return self._statistics.unsqueeze(0)
        return self._packed.double().sum(1)

    def norm(self, start: int = 0) -> Tensor:
        """Norm of the ranks' mean gradient from element `start` on, 0-dim.

        It is not finite where a gradient, or the loss of any rank, was not.
        """
        end = self.gradient.numel() + self.world_size
        norm: Tensor = torch.linalg.vector_norm(self._message[start:end])
        return norm / self.world_size if self.world_size > 1 else norm

    def _all_reduce(self, message: Tensor) -> None:
        if self._group is not None:
            group = self._group
            self.timer.measure(lambda: dist.all_reduce(message, group=group))


def _pack(values: Tensor, into: Tensor) -> None:
    """Float64 `values` (s,) as float32 pieces (2, s) that add up to them."""
    high = values.float()
    into[0] = high
    into[1] = values - high


def broadcast_from_first(tensors: list[Tensor], group: ProcessGroup | None) -> None:
    """Make `tensors` on every rank what they are on the group's first."""
    if group is not None:
        for tensor in tensors:
            dist.broadcast(tensor, group=group, group_src=0)


class SyncTimer:
    """Time spent in all-reduces: wall on a CPU, the stream's own on CUDA (read when taken)."""

    def __init__(self, device: torch.device) -> None:
        self.tracer: Tracer = NULL_TRACER
        """Shows each all-reduce: of the calling thread, which on CUDA only submits it."""
        self._cuda = device.type == "cuda"
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._seconds = 0.0
        self._calls = 0

    def measure(self, reduction: Callable[[], object]) -> None:
        """Run `reduction` and count it."""
        self._calls += 1
        with self.tracer.span("Gradient Sync"):
            self._measure(reduction)

    def _measure(self, reduction: Callable[[], object]) -> None:
        if self._cuda:
            begin, end = (
                torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # no stub
                for _ in range(2)
            )
            begin.record()
            reduction()
            end.record()
            self._events.append((begin, end))
            return
        began = time.perf_counter()
        reduction()
        self._seconds += time.perf_counter() - began

    def take(self) -> tuple[float, int]:
        """(milliseconds, calls) since the last call; waits for the stream on CUDA."""
        milliseconds = self._seconds * 1e3
        if self._events:
            self._events[-1][1].synchronize()
            milliseconds += sum(begin.elapsed_time(end) for begin, end in self._events)
        taken = milliseconds, self._calls
        self._events.clear()
        self._seconds, self._calls = 0.0, 0
        return taken
