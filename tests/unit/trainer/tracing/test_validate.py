from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from trace_files import HandMade, ticks

from drivetrain_trainer.tracing import FlowPoint
from drivetrain_trainer.tracing.merge import merge
from drivetrain_trainer.tracing.validate import Verdict, validate

PROCESSOR = "DRIVETRAIN_TRACE_PROCESSOR"
"""Names Perfetto's trace_processor_shell, which is asked too where it is there."""


def check(processes: list[HandMade]) -> Verdict:
    return validate([process.write() for process in processes])


def test_a_sound_trace_is_counted(tmp_path: Path) -> None:
    verdict = check([*ticks(tmp_path, 5), *ticks(tmp_path, 5, rank=1)])
    assert verdict.sound, verdict.faults
    assert (verdict.arrows, verdict.cut_arrows, verdict.spans) == (10, 0, 70)


def cross(learner: HandMade, _: HandMade) -> None:
    learner.span("Update", 300.0, 340.0)
    learner.span("Update", 330.0, 360.0)


def unbound(learner: HandMade, _: HandMade) -> None:
    learner.point(FlowPoint.INFERENCE, 9, 98.0)
    learner.span("Report", 400.0, 401.0)


def back(learner: HandMade, collector: HandMade) -> None:
    learner.events[3]["ts"] = 16_500  # the inference, after the response
    del collector


def nameless_thread(learner: HandMade, _: HandMade) -> None:
    learner.span("Replay Rows", 1.0, 2.0, thread=3)


def nameless_process(learner: HandMade, _: HandMade) -> None:
    learner.events = [e for e in learner.events if e["name"] != "process_name"]


def counter(learner: HandMade, _: HandMade) -> None:
    learner.add("C", "rows", 400.0, args={"value": "many"})


def begin_end(learner: HandMade, _: HandMade) -> None:
    learner.add("B", "Learning", 400.0)


def negative(learner: HandMade, _: HandMade) -> None:
    learner.add("X", "Learning", 400.0, dur=-3)


def half_cpu(learner: HandMade, _: HandMade) -> None:
    learner.add("X", "Learning", 400.0, dur=3, tts=1)


def large_id(learner: HandMade, _: HandMade) -> None:
    learner.add("t", "tick", 21.0, cat="tick", id=1 << 53, args={"at": "inference"})


def unknown_end(learner: HandMade, _: HandMade) -> None:
    for event in learner.events:
        event.pop("bp", None)


def other_phase(learner: HandMade, _: HandMade) -> None:
    for event in learner.events:
        if event.get("args", {}).get("at") == "response":
            event["ph"] = "s"


def hole(_: HandMade, collector: HandMade) -> None:
    collector.events = [
        event
        for event in collector.events
        if event.get("id") != collector.flow.number(1) or event["args"]["at"] != "env step"
    ]


def no_start(_: HandMade, collector: HandMade) -> None:
    collector.events = [
        event
        for event in collector.events
        if event.get("id") != collector.flow.number(1) or event["ph"] != "s"
    ]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (cross, "cross"),
        (unbound, "outside every span"),
        (back, "out of order"),
        (nameless_thread, "has no name"),
        (nameless_process, "process 1000100 has no name"),
        (counter, "counter without a number"),
        (begin_end, "phase 'B'"),
        (negative, "time before its beginning"),
        (half_cpu, "tts without tdur"),
        (large_id, "id below"),
        (unknown_end, "bp"),
        (other_phase, "is no t"),
        (hole, "tick 1: not whole, among others"),
        (no_start, "tick 1: not whole, among others"),
    ],
)
def test_each_broken_promise_is_told(
    tmp_path: Path, spoil: Callable[[HandMade, HandMade], None], words: str
) -> None:
    learner, collector = ticks(tmp_path, 3)
    spoil(learner, collector)
    verdict = check([learner, collector])
    assert not verdict.sound
    assert any(words in fault for fault in verdict.faults), verdict.faults


def test_a_window_and_a_kill_cut_ticks_at_the_ends_alone(tmp_path: Path) -> None:
    learner, collector = ticks(tmp_path, 6)
    collector.ended = False
    # The window of the collector begins in tick 1; it was killed in the env step of tick 4.
    collector.events = [
        event
        for event in collector.events
        if event["ph"] == "M" or 120_000 <= event["ts"] < 421_500
    ]
    collector.events = [e for e in collector.events if e.get("dur") != 30_000 or e["ts"] < 400_000]
    learner.events = [e for e in learner.events if e["ph"] == "M" or e["ts"] < 420_000]
    verdict = check([learner, collector])
    assert verdict.sound, verdict.faults
    assert verdict.arrows == 2
    assert verdict.cut_arrows == 3


def test_faults_are_told_up_to_a_hundred(tmp_path: Path) -> None:
    learner = ticks(tmp_path, 1)[0]
    for _ in range(150):
        learner.add("B", "Learning", 95.0)
    verdict = check([learner])
    assert len(verdict.faults) == 100
    assert verdict.more_faults == 50


def test_perfettos_own_processor_reads_every_arrow(tmp_path: Path) -> None:
    processes = [*ticks(tmp_path, 5), *ticks(tmp_path, 5, rank=1)]
    merged = merge([process.write() for process in processes], tmp_path / "all.json")
    assert validate([merged.path]).arrows == 10
    processor = os.environ.get(PROCESSOR)
    if processor is None:
        return  # the strict validator above stands for it
    queries = tmp_path / "queries.sql"
    queries.write_text("select count(*) as n from flow; select count(*) as n from slice;")
    shown = subprocess.run(
        [processor, "-q", str(queries), str(merged.path)],
        check=True,
        capture_output=True,
        text=True,
    )
    numbers = [int(line.strip('"')) for line in shown.stdout.split() if line.strip('"').isdigit()]
    assert numbers == [50, 70]
