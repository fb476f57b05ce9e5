"""A strict reader: whether files keep every promise of the format, and what they break."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from drivetrain_trainer.tracing.chains import POINTS, Chains
from drivetrain_trainer.tracing.reader import Reading, read_together
from drivetrain_trainer.tracing.segments import TRACE_ENDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from drivetrain_trainer.tracing.chains import Chain
    from drivetrain_trainer.tracing.reader import Event

_PHASES: Final = frozenset("XMCistf")
_FLOWS: Final = frozenset("stf")
_END_PHASES: Final = {str(POINTS[0]): "s", str(POINTS[-1]): "f"}
_KEPT_SPANS: Final = 10_000
_FAULTS: Final = 100
"""Faults that are told; the rest is counted."""


@dataclass
class Verdict:
    """What a validation found."""

    events: int = 0
    spans: int = 0
    arrows: int = 0
    """Ticks whose arrow leads through every point."""
    cut_arrows: int = 0
    """Ticks at the ends of the trace."""
    faults: list[str] = field(default_factory=list)
    more_faults: int = 0
    """Beyond those listed."""

    def fault(self, text: str) -> None:
        """Note a broken promise."""
        if len(self.faults) < _FAULTS:
            self.faults.append(text)
        else:
            self.more_faults += 1

    @property
    def sound(self) -> bool:
        """Whether every promise is kept."""
        return not self.faults


@dataclass
class _Track:
    process: int
    named: bool = False
    used: bool = False
    spans: deque[tuple[int, int, str]] = field(default_factory=lambda: deque(maxlen=_KEPT_SPANS))
    """Newest spans that no later one has enclosed."""
    points: list[Event] = field(default_factory=list)
    """Arrow points whose span has not ended yet."""
    last_end_ns: int = 0
    last_point_ns: int = 0


def validate(paths: Sequence[Path]) -> Verdict:
    """Check files against Chrome's format and our own promises.

    Spans nest; arrows are bound to spans, and pass their points in order; processes and
    threads are named; a cut last line is no fault, nor is a tick cut by the trace's ends.

    Raises:
        TraceError: one of them is no trace at all.
    """
    reading = Reading()
    checker = _Checker()
    for event in read_together(paths, reading):
        checker.check(event)
    for place in reading.damaged:
        checker.verdict.fault(f"{place}: not an event")
    return checker.finish()


class _Checker:
    def __init__(self) -> None:
        self.verdict = Verdict()
        self._tracks: dict[int, _Track] = {}
        self._named: set[int] = set()
        self._ended: set[int] = set()
        self._chains = Chains()
        self._done: dict[int, list[Chain]] = {}
        self._complete: dict[int, int] = {}
        """Latest tick of each line whose arrow is whole."""

    def check(self, event: Event) -> None:
        verdict = self.verdict
        verdict.events += 1
        for text in _field_faults(event):
            verdict.fault(f"{text}: {event.line.decode(errors='replace')}")
        track = self._tracks.setdefault(event.track, _Track(event.process))
        if track.process != event.process:
            verdict.fault(f"track {event.track} belongs to two processes: {event.fields}")
        if event.phase == "M":
            self._check_metadata(event, track)
            return
        track.used = True
        if event.phase == "X":
            verdict.spans += 1
            self._check_span(event, track)
        elif event.phase in _FLOWS:
            self._check_point(event, track)
        elif event.name == TRACE_ENDS:
            self._ended.add(event.process)

    def finish(self) -> Verdict:
        for chain in self._chains.rest():
            self._check_chain(chain)
        self._check_line_ends()
        for number, track in self._tracks.items():
            if not track.used:
                continue
            if not track.named:
                self.verdict.fault(f"track {number} has no name")
            if track.process not in self._named:
                self.verdict.fault(f"process {track.process} has no name")
            for point in track.points:
                # Its span was still open when the process was killed, or read.
                if track.process in self._ended or point.start_ns < track.last_end_ns:
                    self.verdict.fault(f"arrow point outside every span: {point.fields}")
        return self.verdict

    def _check_metadata(self, event: Event, track: _Track) -> None:
        name = event.args.get("name")
        if event.name == "thread_name" and name:
            track.named = True
        if event.name == "process_name" and name:
            self._named.add(event.process)

    def _check_span(self, event: Event, track: _Track) -> None:
        start, end = event.start_ns, event.end_ns
        spans = track.spans
        while spans and spans[-1][0] >= start and spans[-1][1] <= end:
            spans.pop()
        if spans:
            other_start, other_end, other = spans[-1]
            apart = other_end <= start or end <= other_start
            within = other_start <= start and end <= other_end
            if not (apart or within):
                self.verdict.fault(
                    f"spans {other} and {event.name} of track {event.track} cross at {event.fields}"
                )
        spans.append((start, end, event.name))
        track.last_end_ns = max(track.last_end_ns, end)
        track.points = [point for point in track.points if not start <= point.start_ns <= end]

    def _check_point(self, event: Event, track: _Track) -> None:
        if event.start_ns < track.last_point_ns:
            self.verdict.fault(f"arrow points of track {event.track} go back: {event.fields}")
        track.last_point_ns = event.start_ns
        track.points.append(event)
        phase = _END_PHASES.get(event.args.get("at", ""), "t")
        if event.phase != phase:
            self.verdict.fault(f"arrow point {event.args.get('at')} is no {phase}: {event.fields}")
        chain = self._chains.add(event)
        if chain is not None:
            self._check_chain(chain)

    def _check_chain(self, chain: Chain) -> None:
        """Points in order; a tick may lack its beginning only before the first whole one."""
        times = [chain.times[point] for point in POINTS if point in chain.times]
        if times != sorted(times):
            self.verdict.fault(f"tick {chain.tick}: points out of order: {_points(chain)}")
        if chain.complete:
            self.verdict.arrows += 1
            self._complete[chain.line] = max(chain.tick, self._complete.get(chain.line, -1))
            return
        self.verdict.cut_arrows += 1
        self._done.setdefault(chain.line, []).append(chain)
        if POINTS[0] not in chain.times and chain.line in self._complete:
            self.verdict.fault(f"tick {chain.tick}: no beginning: {_points(chain)}")

    def _check_line_ends(self) -> None:
        """A tick may lack its end only after the last whole one."""
        for line, cut in self._done.items():
            newest = self._complete.get(line)
            for chain in cut:
                whole_start = POINTS[0] in chain.times
                if newest is not None and whole_start and chain.tick < newest:
                    self.verdict.fault(f"tick {chain.tick}: no end: {_points(chain)}")


def _points(chain: Chain) -> dict[str, int]:
    return {str(point): time for point, time in chain.times.items()}


def _field_faults(event: Event) -> list[str]:
    fields = event.fields
    faults = [key for key in ("pid", "tid") if not _natural(fields.get(key))]
    if event.phase not in _PHASES:
        faults.append(f"phase {event.phase!r}")
    if not event.name:
        faults.append("no name")
    if event.start_ns < 0 or event.end_ns < event.start_ns:
        faults.append("time before its beginning")
    if event.phase == "X" and "dur" not in fields:
        faults.append("no dur")
    if ("tts" in fields) != ("tdur" in fields):
        faults.append("tts without tdur, or tdur without tts")
    if event.phase == "C" and not _numbers(event.args):
        faults.append("counter without a number")
    return faults + (_arrow_faults(fields) if event.phase in _FLOWS else [])


def _arrow_faults(fields: Mapping[str, Any]) -> list[str]:
    faults = []
    if not _natural(fields.get("id")) or fields["id"] >= 1 << 53:
        faults.append("arrow without an id below 2**53")
    if not fields.get("cat"):
        faults.append("arrow without a category")
    if (fields["ph"] == "f") != (fields.get("bp") == "e"):
        faults.append("bp")
    return faults


def _natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _numbers(args: Any) -> bool:  # noqa: ANN401  # as it stands in the file
    return bool(args) and all(isinstance(value, int | float) for value in args.values())
