"""What a device did when, from CUDA events, without a thread that works waiting for it.

Events are recorded around the work in its stream. The writing thread asks later whether they
have passed, and places them on the host's clock by an *anchor*: an event in an idle stream of
its own whose time on the host is known.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivetrain_trainer.tracing.tracer import GpuMark

_PENDING: Final = 20_000
"""Intervals that have not passed yet."""
_ANCHOR_SECONDS: Final = 1.0
"""Event times are float32 milliseconds: a second is told to 60 ns, and clocks drift apart."""
_TRIES: Final = 3


class GpuTimer(Protocol):
    """Makes marks on a device."""

    def mark(self) -> GpuMark:
        """A mark in the current stream; does not wait."""
        ...

    def idle_mark(self) -> GpuMark:
        """A mark that passes at once, in a stream of its own; waits for it."""
        ...


@dataclass(frozen=True)
class GpuInterval:
    """A span on the device, on the host's monotonic clock."""

    name: str
    track: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class _Anchor:
    mark: GpuMark
    host_ns: int

    def host_time(self, mark: GpuMark) -> int:
        return self.host_ns + round(self.mark.elapsed_time(mark) * 1e6)


@dataclass(frozen=True)
class _Pending:
    name: str
    track: str
    anchor: _Anchor
    begin: GpuMark
    end: GpuMark


class GpuIntervals:
    """Intervals of one device: marked by threads that work, resolved by the one that writes."""

    def __init__(self, timer: GpuTimer) -> None:
        self._timer = timer
        self._pending: deque[_Pending] = deque()
        self._anchor = self._make_anchor()
        self._lost = 0

    def mark(self) -> GpuMark:
        """A point in the calling thread's current stream."""
        return self._timer.mark()

    def complete(self, name: str, track: str, begin: GpuMark) -> None:
        """From `begin` to here; the work in between may not have begun."""
        if len(self._pending) >= _PENDING:
            self._lost += 1
            return
        pending = _Pending(name, track, self._anchor, begin, self._timer.mark())
        self._pending.append(pending)

    def resolve(self) -> Iterator[GpuInterval]:
        """Intervals that have passed since the last call; never waits for work."""
        for _ in range(len(self._pending)):
            pending = self._pending.popleft()
            if not pending.end.query():
                self._pending.append(pending)
                continue
            anchor = pending.anchor
            yield GpuInterval(
                pending.name,
                pending.track,
                anchor.host_time(pending.begin),
                anchor.host_time(pending.end),
            )
        if time.perf_counter_ns() - self._anchor.host_ns > _ANCHOR_SECONDS * 1e9:
            self._anchor = self._make_anchor()

    def take_lost(self) -> int:
        """Intervals left out since the last call, because the device was too far behind."""
        lost, self._lost = self._lost, 0
        return lost

    def _make_anchor(self) -> _Anchor:
        """The tightest of a few tries: a mark lies between the host's times around it."""
        best: tuple[int, _Anchor] | None = None
        for _ in range(_TRIES):
            before = time.perf_counter_ns()
            mark = self._timer.idle_mark()
            after = time.perf_counter_ns()
            if best is None or after - before < best[0]:
                best = (after - before, _Anchor(mark, (before + after) // 2))
        assert best is not None
        return best[1]


def cuda_intervals(device: str) -> GpuIntervals:
    """Intervals of a CUDA device."""
    return GpuIntervals(_CudaTimer(device))


class _CudaTimer:
    def __init__(self, device: str) -> None:
        # Imported here: what reads traces has no use for torch.
        import torch  # noqa: PLC0415

        self._cuda = torch.cuda
        self._device = torch.device(device)
        self._idle: torch.cuda.Stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]  # torch's stub lacks it

    def mark(self) -> GpuMark:
        event = self._cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # as above
        event.record(self._cuda.current_stream(self._device))
        return event

    def idle_mark(self) -> GpuMark:
        event = self._cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # as above
        event.record(self._idle)
        event.synchronize()
        return event
