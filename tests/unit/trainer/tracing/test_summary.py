from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from trace_files import MS, HandMade, ticks

from drivetrain_trainer.tracing import FlowPoint, Role
from drivetrain_trainer.tracing.describe import describe
from drivetrain_trainer.tracing.histogram import Durations
from drivetrain_trainer.tracing.merge import merge
from drivetrain_trainer.tracing.overlap import Overlap
from drivetrain_trainer.tracing.summary import OVERLAPS, summarize, to_json


def write(processes: list[HandMade]) -> list[Path]:
    return [process.write() for process in processes]


def test_spans_overlaps_and_latencies_by_hand(tmp_path: Path) -> None:
    found = summarize(write(ticks(tmp_path, 10)))
    learner = found.track("rank 0 learner", "main")
    assert learner is not None
    learning = learner.spans["Learning"]
    assert (learning.count, learning.total, learning.mean) == (10, 700 * MS, 70 * MS)
    assert learning.quantile(0.5) == learning.quantile(0.99) == 70 * MS
    assert learner.wall_ns == (994 - 5) * MS
    overlaps = found.overlaps[0, 1]
    # Of each tick, env step 20 to 50 lies within learning 20 to 90.
    assert (overlaps[0].first, overlaps[0].second) == ("Learning", "Env Step")
    assert (overlaps[0].first_ns, overlaps[0].second_ns) == (700 * MS, 300 * MS)
    assert overlaps[0].both_ns == 300 * MS
    assert not overlaps[1].measured
    latencies = {pair: spent.mean / MS for pair, spent in found.latencies.items()}
    assert latencies[FlowPoint.REQUEST, FlowPoint.RESPONSE] == 15
    assert latencies[FlowPoint.RESPONSE, FlowPoint.STEP] == 5
    assert latencies[FlowPoint.STEP, FlowPoint.WRITE] == 30
    assert latencies[FlowPoint.WRITE, FlowPoint.COMMIT] == 42
    assert latencies[FlowPoint.REQUEST, FlowPoint.COMMIT] == 92
    assert (found.ticks, found.cut_ticks) == (10, 0)


def test_ranks_and_attempts_are_kept_apart(tmp_path: Path) -> None:
    processes = [
        *ticks(tmp_path, 4, rank=0),
        *ticks(tmp_path, 4, rank=1),
        *ticks(tmp_path, 4, rank=1, attempt=2),
    ]
    found = summarize(write(processes))
    assert sorted(found.overlaps) == [(0, 1), (1, 1), (1, 2)]
    assert all(kinds[0].both_ns == 120 * MS for kinds in found.overlaps.values())
    assert found.ticks == 12


def test_device_copies_beside_learning(tmp_path: Path) -> None:
    learner = HandMade(tmp_path, Role.LEARNER)
    for thread, name in ((1, "GPU main stream"), (2, "GPU replay stream")):
        learner.metadata("thread_name", {"name": name}, thread=thread)
    for tick in range(5):
        t = 100.0 * tick
        learner.span("Learning", t + 10, t + 60, thread=1)
    for tick in range(5):  # told late, as device spans are
        t = 100.0 * tick
        learner.span("Replay H2D", t + 55, t + 65, thread=2)
        learner.span("Replay Gather", t + 65, t + 70, thread=2)
    found = summarize([learner.write()])
    by_spans = dict(zip(OVERLAPS, found.overlaps[0, 1], strict=True))
    copies = by_spans[("Learning", "GPU main stream"), ("Replay H2D", "GPU replay stream")]
    assert (copies.both_ns, copies.second_ns) == (25 * MS, 50 * MS)
    gather = by_spans[("Learning", "GPU main stream"), ("Replay Gather", "GPU replay stream")]
    assert (gather.both_ns, gather.second_ns) == (0, 25 * MS)
    assert "0.025 s of Replay H2D beside Learning: 50.0% of Replay H2D" in describe(found)


@pytest.mark.parametrize("seed", range(5))
def test_overlap_is_what_counting_milliseconds_gives(seed: int) -> None:
    draw = random.Random(seed)

    def spans() -> list[tuple[int, int]]:
        found, now = [], 0
        for _ in range(200):
            start = now + draw.randint(0, 5)
            now = start + draw.randint(1, 9)
            found.append((start, now))
        return found

    sides = (spans(), spans())
    covered = [{ms for start, end in side for ms in range(start, end)} for side in sides]
    overlap = Overlap("a", "b")
    both = [(end, start, second) for second in (0, 1) for start, end in sides[second]]
    for end, start, second in sorted(both):
        overlap.add(start, end, second=bool(second))
    assert overlap.both_ns == len(covered[0] & covered[1])
    assert (overlap.first_ns, overlap.second_ns) == (len(covered[0]), len(covered[1]))


def test_quantiles_are_right_to_two_per_cent() -> None:
    draw = random.Random(0)
    values = [round(draw.lognormvariate(13, 2)) + 1 for _ in range(5000)]
    spent = Durations()
    for value in values:
        spent.add(value)
    values.sort()
    for share in (0.01, 0.5, 0.9, 0.99):
        assert spent.quantile(share) == pytest.approx(values[int(share * 5000) - 1], rel=0.02)
    assert (spent.least, spent.greatest) == (values[0], values[-1])
    assert Durations().quantile(0.5) == Durations().mean == 0.0


def test_a_live_or_killed_process_is_told(tmp_path: Path) -> None:
    processes = ticks(tmp_path, 3)
    processes[1].ended = False
    paths = write(processes)
    paths[1].write_text(paths[1].read_text()[:-40])
    words = describe(summarize(paths))
    assert "rank 0 collector: not ended; it was killed, or still runs" in words
    assert "rank 0 learner: not ended" not in words
    assert "last line cut" in words
    assert "2 whole" in words or "3 whole" in words


def test_what_was_lost_is_told(tmp_path: Path) -> None:
    process = ticks(tmp_path, 2)[0]
    process.events[0]["args"]["segment"] = 3
    process.add("i", "events lost", 500.0, s="p", args={"count": 17})
    words = describe(summarize([process.write()]))
    assert "rank 0 learner: 17 events lost to a slow disk" in words
    assert "rank 0 learner: only the newest part (training.trace_max_megabytes)" in words


def test_a_merged_file_tells_the_same(tmp_path: Path) -> None:
    paths = write([*ticks(tmp_path, 6), *ticks(tmp_path, 6, rank=1)])
    merged = merge(paths, tmp_path / "all.json.gz")
    apart, together = (to_json(summarize(files)) for files in (paths, [merged.path]))
    assert apart.pop("files") != together.pop("files")
    assert apart == together
    assert json.loads(json.dumps(together)) == together
