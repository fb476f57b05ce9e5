from __future__ import annotations

import errno
import json
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.tracing import (
    NULL_TRACER,
    FileTracer,
    FlowPhase,
    FlowPoint,
    Role,
    TickFlow,
    TraceSettings,
    open_tracer,
    recorder,
)
from drivetrain_trainer.tracing.reader import Reading, read
from drivetrain_trainer.tracing.segments import Segments
from drivetrain_trainer.tracing.validate import validate

CHILD = Path(__file__).with_name("traced_child.py")


def events(path: Path, phase: str = "X") -> list[dict[str, Any]]:
    return [event for event in json.loads(path.read_text()) if event["ph"] == phase]


def names(path: Path) -> dict[str, list[str]]:
    """Names that metadata gives, by kind."""
    found: dict[str, list[str]] = {}
    for event in events(path, "M"):
        found.setdefault(event["name"], []).append(event["args"].get("name", ""))
    return found


# Trees of spans: a name, arguments, and the spans within.
SPANS = st.recursive(
    st.tuples(st.text(min_size=1, max_size=8), st.just(())),
    lambda inner: st.tuples(st.text(min_size=1, max_size=8), st.lists(inner, max_size=3)),
    max_leaves=12,
)


def enter(tracer: FileTracer, tree: Any) -> list[str]:
    """Record a tree; its names in the order in which its spans end."""
    name, inner = tree
    ended = []
    with tracer.span(name, {"text": name}):
        for child in inner:
            ended += enter(tracer, child)
    return [*ended, name]


@given(st.lists(SPANS, max_size=4))
def test_a_closed_trace_is_json_that_holds_each_span_once(trees: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tracer = FileTracer(TraceSettings(Path(folder), 0, Role.LEARNER, 1, 10**7))
        ended = [name for tree in trees for name in enter(tracer, tree)]
        tracer.close()
        found = events(tracer.path)
        assert [event["name"] for event in found] == ended
        assert [event["args"]["text"] for event in found] == ended
        assert validate([tracer.path]).sound


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    tracer = FileTracer(TraceSettings(tmp_path_factory.mktemp("t"), 0, Role.LEARNER, 1, 10**7))
    for number in range(20):
        with tracer.span("Learning, \u00e9", {"number": number}):
            tracer.counter("replay rows", number)
    tracer.close()
    return tracer.path.read_bytes()


@given(data=st.data())
def test_cut_at_any_byte_every_whole_event_is_read(recorded: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(2, len(recorded)))
    whole = [line for line in recorded[:cut].split(b"\n")[1:] if line.endswith((b"},", b"}"))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cut.json"
        path.write_bytes(recorded[:cut])
        reading = Reading()
        found = list(read(path, reading))
    # A line cut after an inner brace ends like a whole one, and is none.
    assert len(found) in {len(whole), len(whole) - 1}
    assert not reading.damaged
    assert [json.loads(event.line)["name"] for event in found] == [event.name for event in found]


def test_a_killed_process_leaves_a_trace_that_is_sound(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, str(CHILD), str(tmp_path)])
    path = TraceSettings(tmp_path, 0, Role.COLLECTOR, 1, 1).path
    deadline = time.monotonic() + 30
    while not path.exists() or path.stat().st_size < 200_000:
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.01)
    child.kill()
    child.wait()
    spans = [event for event in read(path) if event.phase == "X"]
    assert [event.args["tick"] for event in spans] == list(range(len(spans)))
    assert len(spans) >= 1000
    verdict = validate([path])
    assert verdict.sound, verdict.faults


def test_threads_are_named_apart_and_lose_nothing(open_trace: Any) -> None:
    tracer = open_trace()

    def work() -> None:
        for number in range(500):
            with tracer.span(threading.current_thread().name):
                tracer.counter("c", number)

    threads = [threading.Thread(target=work, name=f"worker {n}") for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracer.close()
    found = events(tracer.path)
    assert len(found) == 2000
    by_thread = {event["tid"]: event["name"] for event in found}
    assert sorted(by_thread.values()) == [f"worker {n}" for n in range(4)]
    assert sorted(names(tracer.path)["thread_name"]) == [
        "main",
        *(f"worker {n}" for n in range(4)),
    ]
    assert validate([tracer.path]).sound


def test_a_trace_that_another_thread_closes_is_sound(open_trace: Any) -> None:
    tracer = open_trace()
    with tracer.span("Iteration"):
        pass
    thread = threading.Thread(target=tracer.close, name="closing")
    thread.start()
    thread.join()
    assert names(tracer.path)["thread_name"] == ["main"]
    verdict = validate([tracer.path])
    assert verdict.sound, verdict.faults


def test_a_named_thread_keeps_its_name_and_place(open_trace: Any) -> None:
    tracer = open_trace()

    def work() -> None:
        tracer.thread("replay_device_sync", 7)
        with tracer.span("Replay Rows"):
            pass

    thread = threading.Thread(target=work, name="other")
    thread.start()
    thread.join()
    tracer.close()
    (span,) = events(tracer.path)
    rows = [e for e in events(tracer.path, "M") if e["tid"] == span["tid"]]
    assert [row["args"] for row in rows] == [{"name": "replay_device_sync"}, {"sort_index": 7}]


def test_the_bound_holds_at_every_moment_and_the_newest_events_are_kept(
    open_trace: Any, tmp_path: Path
) -> None:
    bound = 60_000
    tracer = open_trace(max_bytes=bound)
    for number in range(3000):
        with tracer.span("Learning", {"number": number}):
            pass
        if number % 100 == 0:
            tracer._flush()
            assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= bound
    tracer.close()
    older, newer = sorted(tmp_path.iterdir(), key=lambda path: ".older" not in path.name)
    assert older.name == "rank0-learner-a1.older.trace.json"
    kept = [e["args"]["number"] for path in (older, newer) for e in events(path)]
    assert kept == list(range(kept[0], 3000)), "a window without gaps, to the last event"
    kept_bytes = older.stat().st_size + newer.stat().st_size
    assert bound / 2 < kept_bytes <= bound
    for path in (older, newer):
        assert names(path)["process_name"] == ["rank 0 learner"]
        assert names(path)["thread_name"] == ["main"]
    assert validate([older, newer]).sound


def test_the_bound_holds_however_much_comes_between_two_flushes(
    open_trace: Any, tmp_path: Path
) -> None:
    bound = 10**6  # the least that training.trace_max_megabytes may be
    tracer = open_trace(max_bytes=bound)
    for number in range(20_000):
        tracer.complete("Learning", number, number + 1, args={"number": number})
    tracer.close()
    files = sorted(tmp_path.iterdir(), key=lambda path: ".older" not in path.name)
    assert bound / 2 < sum(path.stat().st_size for path in files) <= bound
    kept = [event["args"]["number"] for path in files for event in events(path)]
    assert kept == list(range(kept[0], 20_000))


def test_a_slow_disk_costs_events_that_are_counted_and_no_time(
    open_trace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "PENDING_EVENTS", 100)
    tracer = open_trace()
    blocked, entered = threading.Event(), threading.Event()
    put = tracer._segments._put

    def slow(data: bytes) -> None:
        entered.set()
        assert blocked.wait(30)
        put(data)

    monkeypatch.setattr(tracer._segments, "_put", slow)
    tracer.counter("first", 0)
    assert entered.wait(30)
    for number in range(250):
        tracer.counter("c", number)
    blocked.set()
    tracer.close()
    (lost,) = [e for e in events(tracer.path, "i") if e["name"] == "events lost"]
    kept = len([e for e in events(tracer.path, "C") if e["name"] == "c"])
    assert kept + lost["args"]["count"] == 250
    assert 90 <= kept <= 100


def test_a_full_disk_ends_the_trace_and_nothing_else(
    open_trace: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tracer = open_trace()
    with tracer.span("before"):
        pass
    tracer._flush()

    def full(_: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tracer._segments, "_put", full)
    for _ in range(3):
        with tracer.span("after"):
            pass
        tracer._flush()
    tracer.close()
    assert [event.name for event in read(tracer.path) if event.phase == "X"] == ["before"]
    assert capsys.readouterr().out.count("No space left on device") == 1


def test_a_folder_that_cannot_be_made_is_told_and_nothing_is_traced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    tracer = open_tracer(TraceSettings(tmp_path / "file" / "traces", 0, Role.LEARNER, 1, 10**6))
    assert tracer is NULL_TRACER
    assert "no trace" in capsys.readouterr().out


def test_the_same_attempt_started_again_has_a_file_of_its_own(open_trace: Any) -> None:
    first, second = open_trace(), open_trace()
    assert [first.path.name, second.path.name] == [
        "rank0-learner-a1.trace.json",
        "rank0-learner-a1-2.trace.json",
    ]


def test_thread_time_is_the_time_that_the_thread_ran(open_trace: Any) -> None:
    tracer = open_trace(thread_time=True)
    with tracer.span("sleeps"):
        time.sleep(0.05)
    with tracer.span("works"):
        until = time.thread_time_ns() + 20_000_000
        while time.thread_time_ns() < until:
            pass
    tracer.close()
    sleeps, works = events(tracer.path)
    assert sleeps["dur"] >= 50_000
    assert sleeps["tdur"] < 20_000
    assert works["tdur"] >= 20_000
    assert works["tts"] >= sleeps["tts"] + sleeps["tdur"]
    assert validate([tracer.path]).sound


def test_without_thread_time_there_is_none(open_trace: Any) -> None:
    tracer = open_trace()
    with tracer.span("s"):
        pass
    tracer.close()
    assert not {"tts", "tdur"} & set(events(tracer.path)[0])


def test_what_json_cannot_say_is_left_out(open_trace: Any) -> None:
    tracer = open_trace()
    for value in (float("nan"), float("inf"), 1.5):
        tracer.counter("c", value)
    tracer.close()
    assert [event["args"]["value"] for event in events(tracer.path, "C")] == [1.5]


def test_nothing_recorded_costs_no_memory() -> None:
    flow = TickFlow(NULL_TRACER)

    def tick() -> None:
        cpu = NULL_TRACER.cpu_ns()
        NULL_TRACER.complete("Learning", 1, 2, cpu)
        NULL_TRACER.flow("tick", 1, FlowPhase.STEP, "response")
        NULL_TRACER.counter("rows", 1)
        NULL_TRACER.gpu_complete("Learning", "GPU", NULL_TRACER.gpu_mark())
        with NULL_TRACER.span("Report"):
            flow.mark(FlowPoint.STEP, 1)
            flow.mark_all(FlowPoint.COMMIT, 1)

    tick()
    before = sys.getallocatedblocks()
    for _ in range(1000):
        tick()
    assert sys.getallocatedblocks() - before < 10


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4095), st.integers(1, 127), st.integers(0, 15), st.integers(0, 2**30 - 1)
        ),
        unique=True,
        max_size=50,
    )
)
def test_arrows_of_ranks_attempts_groups_and_ticks_have_numbers_of_their_own(
    ticks: list[tuple[int, int, int, int]],
) -> None:
    numbers = {
        TickFlow(NULL_TRACER, rank=rank, attempt=attempt).number(tick, group)
        for rank, attempt, group, tick in ticks
    }
    assert len(numbers) == len(ticks)
    assert all(0 <= number < 2**53 for number in numbers)


@given(
    st.sets(
        st.tuples(st.integers(0, 4999), st.sampled_from(Role), st.integers(1, 1999)), max_size=50
    )
)
def test_processes_have_numbers_of_their_own(processes: set[tuple[int, Role, int]]) -> None:
    numbers = sorted(
        TraceSettings(Path(), rank, role, attempt, 1).process_number
        for rank, role, attempt in processes
    )
    assert all(later - number >= 100 for number, later in pairwise(numbers))
    assert all(0 < number < 2**31 for number in numbers)


def test_a_file_that_cannot_be_opened_raises() -> None:
    with pytest.raises(OSError, match="/dev/null"):
        Segments(Path("/dev/null/trace.json"), 10, header=lambda _: b"", instant=str)
