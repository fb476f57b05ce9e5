from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from event_files import make_run
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain_trainer.analysis import jsonl
from drivetrain_trainer.analysis.runs import RunFolder
from drivetrain_trainer.analysis.schema_check import SchemaError

HEADER: dict[str, object] = {"metric_schema_version": 1, "attempt": 1, "start_env_steps": 0}


def entry(step: int, value: object, tag: str = "Train/mean_reward") -> dict[str, object]:
    return {"step": step, "iteration": 1, "wall_time": 1.5 + step, "values": {tag: value}}


def run_of(folder: Path, *lines: object, end: str = "\n") -> RunFolder:
    make_run(folder, summary={"metric_schema_version": 1})
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "metrics.jsonl").write_text(text + end)
    return RunFolder.open(folder)


def points(folder: RunFolder) -> dict[int, float]:
    series = folder.metrics().series("Train/mean_reward")
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def test_a_run_that_logged_to_it_alone_is_read(tmp_path: Path) -> None:
    folder = run_of(tmp_path, HEADER, entry(1, 0.1), entry(2, "NaN"), entry(3, "-Infinity"))
    metrics = folder.metrics()
    series = metrics.series("Train/mean_reward")
    assert series.steps.tolist() == [1, 2, 3]
    assert series.wall_times.tolist() == [2.5, 3.5, 4.5]
    assert repr(series.values.tolist()) == repr([0.1, math.nan, -math.inf])
    assert metrics.damage == ()


def test_an_attempt_voids_what_lies_beyond_its_start(tmp_path: Path) -> None:
    later = HEADER | {"attempt": 2, "start_env_steps": 20}
    folder = run_of(tmp_path, HEADER, *(entry(s, 1.0) for s in (10, 20, 30)), later, entry(25, 2.0))
    assert points(folder) == {10: 1.0, 20: 1.0, 25: 2.0}


def test_an_attempt_that_begins_anew_voids_everything(tmp_path: Path) -> None:
    folder = run_of(tmp_path, HEADER, entry(10, 1.0), HEADER | {"attempt": 2}, entry(5, 2.0))
    assert points(folder) == {5: 2.0}


def test_a_line_that_a_killed_attempt_left_unfinished_is_lost_alone(tmp_path: Path) -> None:
    torn = json.dumps(entry(2, 1.0))[:-9]
    folder = run_of(
        tmp_path, HEADER, entry(1, 1.0), torn, HEADER | {"start_env_steps": 1}, entry(2, 2.0)
    )
    assert points(folder) == {1: 1.0, 2: 2.0}
    (damage,) = folder.metrics().damage
    assert "metrics.jsonl: line 3: no JSON" in damage


def test_an_unfinished_end_is_told(tmp_path: Path) -> None:
    folder = run_of(tmp_path, HEADER, entry(1, 1.0), '{"step": 2, "wall', end="")
    assert points(folder) == {1: 1.0}
    assert "line 3: it is unfinished" in folder.metrics().damage[0]


@pytest.mark.parametrize(
    "line",
    [
        "[1]",
        "nonsense",
        {"step": 1.5, "wall_time": 1.0, "values": {}},
        {"step": True, "wall_time": 1.0, "values": {}},
        {"step": 1, "wall_time": "now", "values": {}},
        {"step": 1, "wall_time": 1.0, "values": [1.0]},
        {"step": 2**63, "wall_time": 1.0, "values": {}},
        {"step": 1, "wall_time": True, "values": {}},
        entry(7, 10**400),
        entry(7, "seven"),
        entry(7, None),
        entry(7, True),
        entry(7, [1.0]),
    ],
)
def test_what_is_no_report_is_left_out_and_told(tmp_path: Path, line: object) -> None:
    folder = run_of(tmp_path, HEADER, entry(1, 1.0), line, entry(3, 3.0))
    assert points(folder) == {1: 1.0, 3: 3.0}
    assert "line 3" in folder.metrics().damage[0]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((entry(1, 1.0),), "line 1: a report, and no line with metric_schema_version"),
        ((HEADER | {"metric_schema_version": 2}, entry(1, 1.0)), "line 1: .* is 2"),
        ((HEADER | {"metric_schema_version": True}, entry(1, 1.0)), "got true"),
        ((HEADER, entry(1, 1.0), HEADER | {"metric_schema_version": 2}), "line 3: .* is 2"),
        ((HEADER, entry(1, 1.0, "reward/mean")), "retired tag 'reward/mean'"),
        ((HEADER, entry(1, 1.0, "my/tag")), "'my/tag'"),
    ],
)
def test_refused(tmp_path: Path, lines: tuple[object, ...], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        run_of(tmp_path, *lines).metrics()


def test_a_line_without_end_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "RECORD_LIMIT", 1000)
    folder = run_of(tmp_path, HEADER, "x" * 5000)
    with pytest.raises(SchemaError, match="line 2 has more than 1,000 bytes"):
        folder.metrics()


@given(st.integers(0, 400), st.integers(1, 300))
@settings(deadline=None)
def test_a_cut_anywhere_gives_the_whole_lines_before_it(
    tmp_path_factory: pytest.TempPathFactory, cut: int, piece: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    run = run_of(folder, HEADER, *(entry(step, float(step)) for step in range(4)))
    path = folder / "metrics.jsonl"
    content = path.read_bytes()[:cut]
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "PIECE_BYTES", piece)
        found = points(run)
    assert found == {step: float(step) for step in range(max(0, content.count(b"\n") - 1))}
