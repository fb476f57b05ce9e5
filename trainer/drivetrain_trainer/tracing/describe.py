"""A summary in words and tables, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivetrain_trainer.tracing.histogram import Durations
    from drivetrain_trainer.tracing.overlap import Overlap
    from drivetrain_trainer.tracing.summary import TraceSummary, Track

_HEAD: Final = f"{'count':>9} {'mean ms':>10} {'p50 ms':>10} {'p99 ms':>10}"
_NAME: Final = 26
_TOTAL: Final = 10
_MILLISECONDS: Final = 1e-6


def describe(summary: TraceSummary) -> str:
    """All of it, sections apart by an empty line."""
    sections = [
        _told(summary),
        *(_track(summary, track) for track in _ordered(summary)),
        _overlaps(summary),
        _latencies(summary),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _ordered(summary: TraceSummary) -> list[Track]:
    kept = [(number, track) for number, track in summary.tracks.items() if track.spans]
    return [track for _, track in sorted(kept, key=lambda pair: pair[0])]


def _told(summary: TraceSummary) -> list[str]:
    files = len(summary.files)
    lines = [f"{summary.events:,} events of {files} file{'s' if files != 1 else ''}"]
    for process in summary.processes.values():
        if not process.ended:
            lines.append(f"{process.name}: not ended; it was killed, or still runs")
        if process.window_moved:
            lines.append(f"{process.name}: only the newest part (training.trace_max_megabytes)")
        if process.lost_events:
            lines.append(f"{process.name}: {process.lost_events:,} events lost to a slow disk")
    lines += [f"{path}: last line cut" for path in summary.reading.torn]
    if summary.reading.damaged:
        first = summary.reading.damaged[0]
        lines.append(f"{len(summary.reading.damaged)} damaged lines left out, first {first}")
    return lines


def _track(summary: TraceSummary, track: Track) -> list[str]:
    process = summary.processes[track.process]
    wall = track.wall_ns * 1e-9
    lines = [
        f"{process.name}, {track.name}: {wall:.2f} s",
        f"  {'span':<{_NAME}} {_HEAD} {'total s':>{_TOTAL}} {'share':>7}",
    ]
    by_time = sorted(track.spans.items(), key=lambda item: -item[1].total)
    for name, spent in by_time:
        share = spent.total / track.wall_ns if track.wall_ns else 0.0
        lines.append(
            f"  {name:<{_NAME}} {_row(spent)} {spent.total * 1e-9:>{_TOTAL}.3f} {share:>7.1%}"
        )
    return lines


def _overlaps(summary: TraceSummary) -> list[str]:
    lines = [
        f"  rank {rank}, attempt {attempt}: {_overlap(overlap)}"
        for (rank, attempt), overlaps in sorted(summary.overlaps.items())
        for overlap in overlaps
        if overlap.measured
    ]
    if not lines:
        return []
    missing = "" if _on_device(summary) else " (device spans need training.trace_cuda_events)"
    return [f"Overlap{missing}", *lines]


def _on_device(summary: TraceSummary) -> bool:
    return any(track.name.startswith("GPU") for track in _ordered(summary))


def _overlap(overlap: Overlap) -> str:
    return (
        f"{overlap.both_ns * 1e-9:.3f} s of {overlap.second} beside {overlap.first}: "
        f"{overlap.both_ns / overlap.second_ns:.1%} of {overlap.second}, "
        f"{overlap.both_ns / overlap.first_ns:.1%} of {overlap.first}"
    )


def _latencies(summary: TraceSummary) -> list[str]:
    if not summary.latencies:
        return []
    cut = f", {summary.cut_ticks:,} cut by the trace's ends" if summary.cut_ticks else ""
    return [
        f"A tick's way: {summary.ticks:,} whole{cut}",
        f"  {'from, to':<{_NAME}} {_HEAD}",
        *_latency_rows(summary),
    ]


def _latency_rows(summary: TraceSummary) -> Iterator[str]:
    for (first, second), spent in summary.latencies.items():
        yield f"  {f'{first}, {second}':<{_NAME}} {_row(spent)}"


def _row(spent: Durations) -> str:
    figures = (spent.mean, spent.quantile(0.5), spent.quantile(0.99))
    return f"{spent.count:>9,} " + " ".join(f"{_MILLISECONDS * f:>10.3f}" for f in figures)
