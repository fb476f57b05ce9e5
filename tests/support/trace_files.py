"""Trace files made by hand: a rank's ticks with times that can be computed in the head."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drivetrain_trainer.tracing import NULL_TRACER, FlowPoint, Role, TickFlow, TraceSettings

MS = 1_000_000
"""Nanoseconds."""
_PHASE = {FlowPoint.REQUEST: "s", FlowPoint.COMMIT: "f"}


@dataclass
class HandMade:
    """One process's file; times are given in milliseconds."""

    directory: Path
    role: Role
    rank: int = 0
    attempt: int = 1
    boot_id: str = "boot-1"
    wall_offset_s: float = 1_700_000_000.0
    """Wall clock minus monotonic clock."""
    ended: bool = True
    events: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = TraceSettings(self.directory, self.rank, self.role, self.attempt, 1)
        self.path = settings.path
        self.pid = settings.process_number
        self.flow = TickFlow(NULL_TRACER, rank=self.rank, attempt=self.attempt)
        header = {
            "version": 1,
            "rank": self.rank,
            "role": self.role.value,
            "attempt": self.attempt,
            "segment": 0,
            "host": "host",
            "boot_id": self.boot_id,
            "process_id": 1,
            "monotonic_ns": 0,
            "realtime_ns": round(self.wall_offset_s * 1e9),
        }
        self.metadata("drivetrain_trace", header)
        self.metadata("process_name", {"name": settings.process_name})
        self.metadata("thread_name", {"name": "main"})

    def metadata(self, name: str, args: dict[str, Any], *, thread: int = 0) -> None:
        self.add("M", name, 0.0, thread=thread, args=args)

    def add(self, phase: str, name: str, at: float, *, thread: int = 0, **fields: Any) -> None:
        row = {"ph": phase, "name": name, "pid": self.pid, "tid": self.pid + thread}
        self.events.append({**row, "ts": round(at * 1000, 3), **fields})

    def span(self, name: str, start: float, end: float, *, thread: int = 0) -> None:
        self.add("X", name, start, thread=thread, cat="c", dur=round((end - start) * 1000, 3))

    def point(self, point: FlowPoint, tick: int, at: float, *, thread: int = 0) -> None:
        phase = _PHASE.get(point, "t")
        bound = {"bp": "e"} if phase == "f" else {}
        self.add(
            phase,
            "tick",
            at,
            thread=thread,
            cat="tick",
            id=self.flow.number(tick),
            args={"at": point.value},
            **bound,
        )

    def write(self) -> Path:
        if self.ended:
            last = max(e["ts"] + e.get("dur", 0) for e in self.events)
            self.add("i", "trace ends", last / 1000, s="p")
        lines = ",\n".join(json.dumps(event) for event in self.events)
        self.path.write_text("[\n" + lines + ("\n]\n" if self.ended else ",\n"))
        return self.path


def ticks(
    directory: Path, count: int, *, rank: int = 0, only: Iterable[int] | None = None, **kind: Any
) -> list[HandMade]:
    """Learner and collector of `count` ticks of 100 ms each, not written yet.

    Of a tick that begins at t: request t to t+2 (arrow at t+1), inference t+5 to t+15
    (t+6), release t+15 to t+17 (t+16), env step t+20 to t+50 (t+21), replay write t+50 to t+55
    (t+51), learning t+20 to t+90, commit t+92 to t+94 (t+93).
    """
    learner = HandMade(directory, Role.LEARNER, rank, **kind)
    collector = HandMade(directory, Role.COLLECTOR, rank, **kind)
    for tick in only if only is not None else range(count):
        t = 100.0 * tick
        collector.point(FlowPoint.REQUEST, tick, t + 1)
        collector.span("Inference Request", t, t + 2)
        learner.point(FlowPoint.INFERENCE, tick, t + 6)
        learner.span("Inference", t + 5, t + 15)
        learner.point(FlowPoint.RESPONSE, tick, t + 16)
        learner.span("Collector Release", t + 15, t + 17)
        collector.point(FlowPoint.STEP, tick, t + 21)
        collector.span("Env Step", t + 20, t + 50)
        collector.point(FlowPoint.WRITE, tick, t + 51)
        collector.span("Replay Write", t + 50, t + 55)
        learner.span("Learning", t + 20, t + 90)
        learner.point(FlowPoint.COMMIT, tick, t + 93)
        learner.span("Ingress Commit", t + 92, t + 94)
    return [learner, collector]
