"""How much an engine trains on a second: ``train_perf/``, for the whole job."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final, Protocol

import torch
import torch.distributed as dist

from drivetrain_trainer.stats.collective import collective_device
from drivetrain_trainer.stats.flops import batch_flops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.distributed import ProcessGroup

    from drivetrain_trainer.stats.flops import FlopsEstimator

SCOPE: Final = "train_perf"
_PAIRS_KEPT: Final = 256
"""CUDA event pairs before those that the stream has passed are folded into a sum."""


class Stopwatch(Protocol):
    """Adds up the time of blocks on one device."""

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Time a block; one that raises is not counted."""

    def take(self) -> float:
        """Seconds since the last call."""


class HostStopwatch:
    """Wall time; the device's work is done when the host's call returns."""

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        self._nanoseconds = 0

    @contextmanager
    def measure(self) -> Iterator[None]:
        """See `Stopwatch.measure`."""
        began = self._clock_ns()
        yield
        self._nanoseconds += self._clock_ns() - began

    def take(self) -> float:
        """See `Stopwatch.take`."""
        seconds, self._nanoseconds = self._nanoseconds * 1e-9, 0
        return seconds


class StreamStopwatch:
    """Time between two events on the CUDA stream that is current when a block begins.

    It holds what the stream waited for and the host's gaps between submissions; not what other
    streams do that nobody joined before the block's end. The host waits only in `take`, once.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._milliseconds = 0.0

    @contextmanager
    def measure(self) -> Iterator[None]:
        """See `Stopwatch.measure`."""
        stream = torch.cuda.current_stream(self._device)
        began, ended = (
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # no stub
            for _ in range(2)
        )
        began.record(stream)
        yield
        ended.record(stream)
        self._pairs.append((began, ended))
        if len(self._pairs) >= _PAIRS_KEPT:
            self._fold()

    def take(self) -> float:
        """See `Stopwatch.take`; waits for the device."""
        if self._pairs:
            torch.cuda.synchronize(self._device)
            self._fold()
        seconds, self._milliseconds = self._milliseconds * 1e-3, 0.0
        return seconds

    def _fold(self) -> None:
        waiting = []
        for began, ended in self._pairs:
            if ended.query():  # type: ignore[no-untyped-call]  # no stub
                self._milliseconds += began.elapsed_time(ended)
            else:
                waiting.append((began, ended))
        self._pairs = waiting


def make_stopwatch(device: torch.device) -> Stopwatch:
    """Events on a CUDA or ROCm device, the host's clock elsewhere."""
    return StreamStopwatch(device) if device.type == "cuda" else HostStopwatch()


@dataclass
class _Work:
    """What was trained on; a row of the exchange between ranks."""

    tokens: float = 0.0
    seconds: float = 0.0
    flops: float = 0.0
    calls: float = 0.0

    def add(self, other: _Work) -> None:
        """Add another's work."""
        self.tokens += other.tokens
        self.seconds += other.seconds
        self.flops += other.flops
        self.calls += other.calls


class ThroughputMeter:
    """Counts training calls of one engine; a new engine, a resumed one too, begins at zero.

    Args:
        device: Decides how time is taken.
        estimator: FLOPs of one sequence; None for an architecture that has none registered:
            its job reports no FLOPs.
        group: All ranks that train this model; None for one alone.
        counts_tokens: False on a rank that repeats another's data (tensor, context, pipeline
            or expert parallel), so that tokens are summed along data parallelism alone.
        stopwatch: Instead of the device's usual one.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        estimator: FlopsEstimator | None = None,
        group: ProcessGroup | None = None,
        counts_tokens: bool = True,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        self._estimator = estimator
        self._group = group
        self._counts = counts_tokens
        self._stopwatch = stopwatch if stopwatch is not None else make_stopwatch(device)
        self._window = _Work()
        self._total = _Work()

    @contextmanager
    def measure(self, lengths: Sequence[int]) -> Iterator[None]:
        """Time one training call and count what it trains on; repeated data counts again.

        The block begins before gradients are zeroed and ends after the optimizer's step, with
        everything between: preparation of microbatches, forward, backward. It holds no
        rollout, reference or evaluation pass, no loading or saving. A call that raises is not
        counted.

        Args:
            lengths: Valid positions of each sequence, prompt and response, without padding;
                valid transitions, where a policy without memory learns.
        """
        with self._stopwatch.measure():
            yield
        self._window.calls += 1
        if self._counts:
            self._window.tokens += sum(lengths)
            if self._estimator is not None:
                self._window.flops += batch_flops(self._estimator, lengths)

    def export(self) -> dict[str, float]:
        """Figures of the job since the last call, and since the engine began, by full key.

        Collective: every rank of the group calls, and gets the same figures, in one exchange.
        Time is the largest of any rank. Left out are figures of a window without a training
        call, ratios of no time, and FLOPs where some counting rank has no estimator. The host
        waits for its device here, once.
        """
        self._window.seconds = self._stopwatch.take()
        self._total.add(self._window)
        estimated = self._estimator is not None or not self._counts
        window, total, all_estimated = self._over_ranks(estimated=estimated)
        self._window = _Work()
        figures: dict[str, float] = {}
        if window.calls:
            figures |= {"tokens": window.tokens, "seconds": window.seconds}
            figures |= _ratio("tokens_per_second", window.tokens, window.seconds)
        if window.calls and all_estimated:
            figures["estimated_flops"] = window.flops
            figures |= _ratio("estimated_flops_per_second", window.flops, window.seconds)
        if total.calls:
            figures |= {"total_tokens": total.tokens, "total_seconds": total.seconds}
            figures |= _ratio("cumulative_tokens_per_second", total.tokens, total.seconds)
        if total.calls and all_estimated:
            figures |= _ratio("cumulative_estimated_flops_per_second", total.flops, total.seconds)
        return {f"{SCOPE}/{name}": value for name, value in figures.items()}

    def _over_ranks(self, *, estimated: bool) -> tuple[_Work, _Work, bool]:
        if self._group is None:
            return self._window, self._total, estimated
        device = collective_device(self._group)
        row = [*astuple(self._window), *astuple(self._total), float(estimated)]
        mine = torch.tensor(row, dtype=torch.float64, device=device)
        rows = [torch.empty_like(mine) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(rows, mine, group=self._group)
        ranks = torch.stack(rows).cpu()
        sums, most, least = ranks.sum(0).tolist(), ranks.amax(0).tolist(), ranks.amin(0).tolist()
        return (
            _Work(sums[0], most[1], sums[2], sums[3]),
            _Work(sums[4], most[5], sums[6], sums[7]),
            bool(least[8]),
        )


def _ratio(name: str, amount: float, seconds: float) -> dict[str, float]:
    return {name: amount / seconds} if seconds > 0 else {}
