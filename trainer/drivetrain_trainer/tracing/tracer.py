"""What code that is traced talks to; without a trace it costs a call that does nothing."""

from __future__ import annotations

from contextlib import nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

Argument = str | int | float | bool
"""A value that is shown beside a span."""


class FlowPhase(StrEnum):
    """Where an event stands in the arrow that it belongs to; the values are Chrome's."""

    START = "s"
    STEP = "t"
    END = "f"


class GpuMark(Protocol):
    """A point in a device's stream with a time of its own, such as a CUDA event."""

    def query(self) -> bool:
        """Whether the stream has passed it."""
        ...

    def elapsed_time(self, end_event: Any, /) -> float:  # noqa: ANN401  # another of its kind
        """Milliseconds from this one to `end_event`, both passed."""
        ...


class Tracer(Protocol):
    """Records spans, arrows and counters of the calling thread.

    Times are nanoseconds of ``time.perf_counter_ns()``: CLOCK_MONOTONIC, which all processes
    of a machine share. No call waits for a disk or a device, and none raises.
    """

    enabled: bool
    """False where nothing is recorded: what an event would say need not be computed."""

    def cpu_ns(self) -> int:
        """CPU time of the calling thread, to be given to `complete`; 0 where not recorded."""
        ...

    def complete(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        cpu_start_ns: int = 0,
        args: Mapping[str, Argument] | None = None,
    ) -> None:
        """A span that has ended; `cpu_start_ns` is what `cpu_ns` said when it began."""
        ...

    def span(
        self, name: str, args: Mapping[str, Argument] | None = None
    ) -> AbstractContextManager[None]:
        """Record the block as a span."""
        ...

    def flow(self, kind: str, number: int, phase: FlowPhase, point: str) -> None:
        """Lead the arrow `number` of a kind through the span that is open now.

        Args:
            kind: Arrows of one kind share their numbers.
            number: 0 to 2**53 - 1.
            phase: Start, step or end of the arrow.
            point: What happens here, for latencies between points.
        """
        ...

    def counter(self, name: str, value: float) -> None:
        """A value that holds from now on."""
        ...

    def instant(self, name: str, args: Mapping[str, Argument] | None = None) -> None:
        """Something that happened now and took no time."""
        ...

    def thread(self, name: str, order: int) -> None:
        """Name the calling thread and give its place among the process's."""
        ...

    def gpu_mark(self) -> GpuMark | None:
        """A point in the device's current stream; None where devices are not recorded."""
        ...

    def gpu_complete(self, name: str, track: str, begin: GpuMark | None) -> None:
        """A span on the device from `begin` to here in its current stream; None is left out."""
        ...

    def close(self) -> None:
        """Write what is left; a second time does nothing."""
        ...


_NO_SPAN: Final = nullcontext()


class NullTracer:
    """Records nothing, allocates nothing."""

    enabled = False

    def cpu_ns(self) -> int:
        """See `Tracer.cpu_ns`."""
        return 0

    def complete(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        cpu_start_ns: int = 0,
        args: Mapping[str, Argument] | None = None,
    ) -> None:
        """See `Tracer.complete`."""

    def span(
        self,
        name: str,  # noqa: ARG002  # the protocol's
        args: Mapping[str, Argument] | None = None,  # noqa: ARG002  # the protocol's
    ) -> AbstractContextManager[None]:
        """See `Tracer.span`."""
        return _NO_SPAN

    def flow(self, kind: str, number: int, phase: FlowPhase, point: str) -> None:
        """See `Tracer.flow`."""

    def counter(self, name: str, value: float) -> None:
        """See `Tracer.counter`."""

    def instant(self, name: str, args: Mapping[str, Argument] | None = None) -> None:
        """See `Tracer.instant`."""

    def thread(self, name: str, order: int) -> None:
        """See `Tracer.thread`."""

    def gpu_mark(self) -> GpuMark | None:
        """See `Tracer.gpu_mark`."""
        return None

    def gpu_complete(self, name: str, track: str, begin: GpuMark | None) -> None:
        """See `Tracer.gpu_complete`."""

    def close(self) -> None:
        """See `Tracer.close`."""


NULL_TRACER: Final = NullTracer()
