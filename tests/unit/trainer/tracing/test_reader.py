from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from trace_files import HandMade, ticks

from drivetrain_trainer.tracing import Role
from drivetrain_trainer.tracing.reader import Reading, TraceError, locate, read, read_together

NAMES = ["rank0-learner-a1.trace.json", "rank0-collector-a1.trace.json"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory whose traces are where they are by default."""
    traces = tmp_path / "run" / "traces"
    traces.mkdir(parents=True)
    for process in ticks(traces, 3):
        process.write()
    return tmp_path / "run"


def test_traces_are_found_by_run_folder_and_file(run: Path) -> None:
    traces = run / "traces"
    (traces / "notes.txt").write_text("")
    (traces / "rank0-visitor-a1.trace.json").write_text("")
    for given in (run, traces):
        assert [path.name for path in locate(given)] == [NAMES[1], NAMES[0]]
    assert locate(traces / NAMES[0]) == [traces / NAMES[0]]


def test_traces_elsewhere_are_found_through_the_summary(run: Path, tmp_path: Path) -> None:
    (run / "traces").rename(tmp_path / "elsewhere")
    for told in (str(tmp_path / "elsewhere"), "elsewhere"):
        (run / "run_summary.json").write_text(json.dumps({"trace_path": told}))
        assert len(locate(run)) == 2


@pytest.mark.parametrize(
    "summary", ["", "{", "[]", '{"trace_path": 3}', '{"trace_path": "\\u0000"}']
)
def test_a_run_without_traces_is_told_where_was_looked(tmp_path: Path, summary: str) -> None:
    (tmp_path / "run_summary.json").write_text(summary)
    with pytest.raises(TraceError, match="trace_enabled"):
        locate(tmp_path)
    with pytest.raises(TraceError, match="no such file"):
        locate(tmp_path / "absent")


def test_files_sort_by_attempt_rank_process_and_age(tmp_path: Path) -> None:
    ordered = [
        "rank0-collector-a1.trace.json",
        "rank0-learner-a1.older.trace.json",
        "rank0-learner-a1.trace.json",
        "rank0-learner-a1-2.trace.json",
        "rank2-learner-a1.trace.json",
        "rank10-learner-a1.trace.json",
        "rank0-learner-a2.trace.json",
        "rank0-learner-a10.trace.json",
    ]
    for name in sorted(ordered):
        (tmp_path / name).write_text("[\n")
    assert [path.name for path in locate(tmp_path)] == ordered


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"traceEvents": []}\n', "whose first line is"),
        ("[" + "x" * 100 + "\n", "whose first line is"),
        ("[\n" + "x" * (1 << 20), "is no event"),
    ],
)
def test_what_is_no_trace_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=words) as refused:
        list(read(path))
    assert str(path) in str(refused.value)


def test_damage_within_is_told_apart_from_a_cut_end(run: Path) -> None:
    path = run / "traces" / NAMES[0]
    lines = path.read_text().splitlines()
    whole = len(list(read(path)))
    lines[5] = '{"ph": "X", "na\x00\x00'
    path.write_text("\n".join(lines[:-3]) + '\n{"ph": "X", "name')
    reading = Reading()
    assert len(list(read(path, reading))) == whole - 3
    assert reading.damaged == [f"{path}:6"]
    assert reading.torn == [str(path)]


@pytest.mark.parametrize("cut", [0, 1, 40, 400])
def test_compressed_traces_are_read_up_to_where_they_were_cut(run: Path, cut: int) -> None:
    path = run / "traces" / NAMES[0]
    whole = list(read(path))
    data = gzip.compress(path.read_bytes())
    packed = run / "packed.json.gz"
    packed.write_bytes(data[: len(data) - cut])
    reading = Reading()
    found = list(read(packed, reading))
    assert found == whole[: len(found)]
    assert bool(reading.torn) == bool(cut)


def test_events_of_processes_come_in_the_order_of_time(run: Path) -> None:
    events = [event for event in read_together(locate(run)) if event.phase != "M"]
    times = [event.end_ns for event in events]
    assert times == sorted(times)
    assert {event.process for event in events} == {1000100, 1000200}


def test_machines_are_put_beside_each_other_by_their_wall_clocks(tmp_path: Path) -> None:
    first = HandMade(tmp_path, Role.LEARNER, 0, boot_id="a", wall_offset_s=1000.0)
    second = HandMade(tmp_path, Role.LEARNER, 1, boot_id="b", wall_offset_s=1500.5)
    third = HandMade(tmp_path, Role.LEARNER, 2, boot_id="a", wall_offset_s=1001.0)
    for process in (first, second, third):
        process.span("Learning", 10.0, 20.0)
    paths = [process.write() for process in (first, second, third)]
    found = {event.process: event for event in read_together(paths) if event.phase == "X"}
    # The second machine's monotonic clock began 500.5 s later; the third process is of the
    # first machine, whose wall clock was set meanwhile.
    for process, start in ((first, 10), (second, 500_510), (third, 10)):
        event = found[process.pid]
        assert (event.start_ns, event.end_ns) == (start * 10**6, (start + 10) * 10**6)
        assert json.loads(event.line)["ts"] == start * 1000


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    process = HandMade(tmp_path, Role.LEARNER)
    for number in range(20_000):
        process.span("Learning", number, number + 0.5)
    path = process.write()
    del process
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_together([path]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count > 20_000
    assert peak < path.stat().st_size / 4
