"""What a trace says in figures: time by span, overlap, and latencies along a tick's arrow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from drivetrain_trainer.tracing.chains import Chains
from drivetrain_trainer.tracing.flows import FlowPoint
from drivetrain_trainer.tracing.header import HEADER_EVENT
from drivetrain_trainer.tracing.histogram import Durations
from drivetrain_trainer.tracing.overlap import Overlap
from drivetrain_trainer.tracing.reader import Reading, read_together
from drivetrain_trainer.tracing.segments import TRACE_ENDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from drivetrain_trainer.tracing.chains import Chain
    from drivetrain_trainer.tracing.reader import Event

_PROGRESS_EVENTS: Final = 50_000
_MAIN: Final = "main"
_SYNC: Final = "replay_device_sync"
_GPU_MAIN: Final = "GPU main stream"
_GPU_REPLAY: Final = "GPU replay stream"

OVERLAPS: Final = (
    (("Learning", _MAIN), ("Env Step", _MAIN)),
    (("Learning", _MAIN), ("Replay H2D Submit", _SYNC)),
    (("Learning", _GPU_MAIN), ("Replay H2D", _GPU_REPLAY)),
    (("Learning", _GPU_MAIN), ("Replay Gather", _GPU_REPLAY)),
)
"""(span, thread) of a rank that ought to run beside each other, its processes taken together."""

LATENCIES: Final = (
    (FlowPoint.REQUEST, FlowPoint.INFERENCE),
    (FlowPoint.INFERENCE, FlowPoint.RESPONSE),
    (FlowPoint.REQUEST, FlowPoint.RESPONSE),
    (FlowPoint.RESPONSE, FlowPoint.STEP),
    (FlowPoint.STEP, FlowPoint.WRITE),
    (FlowPoint.WRITE, FlowPoint.COMMIT),
    (FlowPoint.REQUEST, FlowPoint.COMMIT),
)
"""Pairs of points whose latency is told."""


@dataclass
class Track:
    """A thread, or a stream of a device."""

    process: int
    name: str
    first_ns: int | None = None
    last_ns: int = 0
    spans: dict[str, Durations] = field(default_factory=dict)

    @property
    def wall_ns(self) -> int:
        """From the beginning of its first span to the end of its last."""
        return self.last_ns - self.first_ns if self.first_ns is not None else 0

    def add(self, event: Event) -> None:
        """Count a span."""
        start = event.start_ns
        self.first_ns = start if self.first_ns is None else min(self.first_ns, start)
        self.last_ns = max(self.last_ns, event.end_ns)
        spent = self.spans.get(event.name)
        if spent is None:
            spent = self.spans[event.name] = Durations()
        spent.add(event.end_ns - start)


@dataclass
class Process:
    """A process of the trace."""

    number: int
    name: str = ""
    rank: int | None = None
    attempt: int | None = None
    ended: bool = False
    """Whether it closed its trace; one that was killed, or still runs, has not."""
    window_moved: bool = False
    """Whether the beginning is gone, because the bound was reached."""
    lost_events: int = 0
    """Left out because the disk was slow."""


@dataclass
class TraceSummary:
    """The figures of one or more trace files."""

    files: tuple[Path, ...]
    events: int = 0
    processes: dict[int, Process] = field(default_factory=dict)
    tracks: dict[int, Track] = field(default_factory=dict)
    overlaps: dict[tuple[int, int], list[Overlap]] = field(default_factory=dict)
    """By (rank, attempt), in the order of `OVERLAPS`."""
    latencies: dict[tuple[FlowPoint, FlowPoint], Durations] = field(default_factory=dict)
    """In the order of `LATENCIES`, over all ranks."""
    ticks: int = 0
    """Ticks whose arrow is whole."""
    cut_ticks: int = 0
    """Ticks of which a part lies outside the trace."""
    reading: Reading = field(default_factory=Reading)

    def track(self, process: str, thread: str) -> Track | None:
        """The first thread of that name in a process whose name begins with `process`."""
        for track in self.tracks.values():
            owner = self.processes.get(track.process)
            if track.name == thread and owner is not None and owner.name.startswith(process):
                return track
        return None


def summarize(
    paths: Sequence[Path], *, progress: Callable[[int], None] = lambda _events: None
) -> TraceSummary:
    """Read files once, in memory that does not grow with them.

    Raises:
        TraceError: one of them is no trace.
    """
    summary = TraceSummary(tuple(paths))
    chains = Chains()
    for event in read_together(paths, summary.reading):
        summary.events += 1
        if summary.events % _PROGRESS_EVENTS == 0:
            progress(summary.events)
        if event.phase == "X":
            _add_span(summary, event)
        elif event.phase == "M":
            _add_metadata(summary, event)
        elif event.phase == "i":
            _add_instant(summary, event)
        elif (chain := chains.add(event)) is not None:
            _add_chain(summary, chain)
    for chain in chains.rest():
        _add_chain(summary, chain)
    return summary


def _add_metadata(summary: TraceSummary, event: Event) -> None:
    process = summary.processes.setdefault(event.process, Process(event.process))
    args = event.args
    if event.name == HEADER_EVENT:
        process.rank, process.attempt = args["rank"], args["attempt"]
        process.window_moved = process.window_moved or args["segment"] > 1
    elif event.name == "process_name":
        process.name = args["name"]
    elif event.name == "thread_name":
        track = summary.tracks.setdefault(event.track, Track(event.process, ""))
        track.name = args["name"]


def _add_instant(summary: TraceSummary, event: Event) -> None:
    process = summary.processes.setdefault(event.process, Process(event.process))
    if event.name == TRACE_ENDS:
        process.ended = True
    elif event.name == "events lost":
        process.lost_events += event.args["count"]


def _add_span(summary: TraceSummary, event: Event) -> None:
    track = summary.tracks.get(event.track)
    if track is None:
        track = summary.tracks[event.track] = Track(event.process, "")
    track.add(event)
    kind = (event.name, track.name)
    sides = _SIDES.get(kind)
    if sides is None:
        return
    process = summary.processes[event.process]
    if process.rank is None or process.attempt is None:
        return
    group = (process.rank, process.attempt)
    overlaps = summary.overlaps.get(group)
    if overlaps is None:
        overlaps = summary.overlaps[group] = _new_overlaps()
    for index, second in sides:
        overlaps[index].add(event.start_ns, event.end_ns, second=second)


def _new_overlaps() -> list[Overlap]:
    return [Overlap(first[0], second[0]) for first, second in OVERLAPS]


def _sides() -> dict[tuple[str, str], list[tuple[int, bool]]]:
    sides: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for index, pair in enumerate(OVERLAPS):
        for second, kind in enumerate(pair):
            sides.setdefault(kind, []).append((index, bool(second)))
    return sides


_SIDES: Final = _sides()


def _add_chain(summary: TraceSummary, chain: Chain) -> None:
    if chain.complete:
        summary.ticks += 1
    else:
        summary.cut_ticks += 1
    for pair in LATENCIES:
        took = chain.between(*pair)
        if took is not None:
            summary.latencies.setdefault(pair, Durations()).add(took)


def to_json(summary: TraceSummary) -> dict[str, Any]:
    """Everything that is told, in milliseconds, for other programs."""
    return {
        "files": [str(path) for path in summary.files],
        "events": summary.events,
        "processes": [
            {
                "name": process.name,
                "ended": process.ended,
                "window_moved": process.window_moved,
                "lost_events": process.lost_events,
            }
            for process in summary.processes.values()
        ],
        "threads": [
            {
                "process": summary.processes[track.process].name,
                "thread": track.name,
                "wall_ms": track.wall_ns * 1e-6,
                "spans": {name: _figures(track, spent) for name, spent in track.spans.items()},
            }
            for track in summary.tracks.values()
            if track.spans
        ],
        "overlaps": [
            {
                "rank": rank,
                "attempt": attempt,
                "spans": [overlap.first, overlap.second],
                "total_ms": [overlap.first_ns * 1e-6, overlap.second_ns * 1e-6],
                "both_ms": overlap.both_ns * 1e-6,
            }
            for (rank, attempt), overlaps in summary.overlaps.items()
            for overlap in overlaps
            if overlap.measured
        ],
        "ticks": summary.ticks,
        "cut_ticks": summary.cut_ticks,
        "latencies": {
            f"{first} to {second}": _durations(spent)
            for (first, second), spent in summary.latencies.items()
        },
    }


def _figures(track: Track, spent: Durations) -> Mapping[str, float]:
    share = spent.total / track.wall_ns if track.wall_ns else 0.0
    return {**_durations(spent), "total_ms": spent.total * 1e-6, "share": share}


def _durations(spent: Durations) -> dict[str, float]:
    return {
        "count": spent.count,
        "mean_ms": spent.mean * 1e-6,
        "p50_ms": spent.quantile(0.5) * 1e-6,
        "p99_ms": spent.quantile(0.99) * 1e-6,
    }
