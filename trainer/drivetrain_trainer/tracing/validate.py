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
_INNER_SPANS: Final = 16
"""Spans within one that holds an arrow point, at most."""
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
    points: list[tuple[Event, int]] = field(default_factory=list)
    """Arrow points whose span has not ended yet, with the spans that had ended before them."""
    ended: int = 0
    """Spans."""
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
        self._cut: dict[int, list[Chain]] = {}
        """Since the last tick of each line whose arrow is whole, once there was one."""

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
        for number, track in self._tracks.items():
            if not track.used:
                continue
            if not track.named:
                self.verdict.fault(f"track {number} has no name")
            if track.process not in self._named:
                self.verdict.fault(f"process {track.process} has no name")
            for point, before in track.points:
                # The span may have been open when the process was killed, or read.
                if track.process in self._ended or track.ended - before > _INNER_SPANS:
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
        track.ended += 1
        track.points = [
            (point, before) for point, before in track.points if not start <= point.start_ns <= end
        ]

    def _check_point(self, event: Event, track: _Track) -> None:
        if event.start_ns < track.last_point_ns:
            self.verdict.fault(f"arrow points of track {event.track} go back: {event.fields}")
        track.last_point_ns = event.start_ns
        track.points.append((event, track.ended))
        phase = _END_PHASES.get(event.args.get("at", ""), "t")
        if event.phase != phase:
            self.verdict.fault(f"arrow point {event.args.get('at')} is no {phase}: {event.fields}")
        chain = self._chains.add(event)
        if chain is not None:
            self._check_chain(chain)

    def _check_chain(self, chain: Chain) -> None:
        """Points in order; only before the first whole tick and after the last are others.

        Processes begin and end at different moments, a killed one half a second before it was
        killed, so that what lies outside their common time is in a part of them alone.
        """
        times = [chain.times[point] for point in POINTS if point in chain.times]
        if times != sorted(times):
            self.verdict.fault(f"tick {chain.tick}: points out of order: {_points(chain)}")
        if chain.complete:
            self.verdict.arrows += 1
            for cut in self._cut.get(chain.line, ()):
                self.verdict.fault(f"tick {cut.tick}: not whole, among others: {_points(cut)}")
            self._cut[chain.line] = []
            return
        self.verdict.cut_arrows += 1
        if chain.line in self._cut:
            self._cut[chain.line].append(chain)


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
