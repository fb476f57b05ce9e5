from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from trace_files import ticks

from drivetrain_trainer.cli.trace import trace


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with the traces of two ranks."""
    traces = tmp_path / "run" / "traces"
    traces.mkdir(parents=True)
    for rank in range(2):
        for process in ticks(traces, 4, rank=rank):
            process.write()
    return tmp_path / "run"


def test_a_summary_shows_spans_overlap_and_latencies(run: Path) -> None:
    done = CliRunner().invoke(trace, ["summary", str(run)])
    assert done.exit_code == 0, done.output
    lines = {" ".join(line.split()) for line in done.output.splitlines()}
    # 4 ticks of 100 ms: learning 70 ms of each, over the 389 ms from first to last span.
    assert "rank 1 learner, main: 0.39 s" in lines
    assert "Learning 4 70.000 70.000 70.000 0.280 72.0%" in lines
    overlap = "0.120 s of Env Step beside Learning: 100.0% of Env Step, 42.9% of Learning"
    assert f"rank 1, attempt 1: {overlap}" in lines
    assert "request, response 8 15.000 15.000 15.000" in lines
    assert "A tick's way: 8 whole" in lines


def test_a_summary_in_json(run: Path) -> None:
    done = CliRunner().invoke(trace, ["summary", str(run), "--json"])
    found = json.loads(done.output)
    assert found["latencies"]["request to commit"]["p50_ms"] == pytest.approx(92)
    assert [overlap["rank"] for overlap in found["overlaps"]] == [0, 1]
    assert {thread["process"] for thread in found["threads"]} == {
        f"rank {rank} {role}" for rank in range(2) for role in ("learner", "collector")
    }


@pytest.mark.parametrize("name", ["all.json", "all.json.gz"])
def test_a_merged_file_is_sound_and_can_be_summarized(
    run: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run)
    runner = CliRunner()
    merged = runner.invoke(trace, ["merge", str(run), "-o", name])
    assert merged.exit_code == 0, merged.output
    assert f"{name}: 120 events of 4 files" in merged.output
    assert runner.invoke(trace, ["validate", name]).output.startswith("sound: 120 events")
    apart = runner.invoke(trace, ["summary", str(run)]).output
    together = runner.invoke(trace, ["summary", name]).output
    assert apart.splitlines()[1:] == together.splitlines()[1:]


def test_merging_leaves_nothing_behind_where_it_cannot_write(run: Path) -> None:
    done = CliRunner().invoke(trace, ["merge", str(run), "-o", str(run / "absent" / "all.json")])
    assert done.exit_code == 2
    assert "absent" in done.output
    (run / "traces" / "rank9-learner-a1.trace.json").write_text("{}\n")
    broken = CliRunner().invoke(trace, ["merge", str(run), "-o", str(run / "all.json")])
    assert broken.exit_code == 2
    assert "not a trace of Drivetrain" in broken.output
    assert [path.name for path in run.iterdir()] == ["traces"]


@pytest.mark.parametrize("command", ["summary", "merge", "validate"])
def test_a_run_without_traces_is_refused(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(trace, [command, "."])
    assert done.exit_code == 2
    assert "was the run made with training.trace_enabled?" in done.output


def test_a_broken_trace_fails_and_says_why(tmp_path: Path) -> None:
    learner = ticks(tmp_path, 2)[0]
    learner.add("B", "Learning", 150.0)
    done = CliRunner().invoke(trace, ["validate", str(learner.write())])
    assert done.exit_code == 1
    assert "phase 'B'" in done.output
    assert "NOT sound" in done.output


def test_reading_a_trace_imports_neither_torch_nor_numpy(run: Path) -> None:
    code = (
        "import sys; from drivetrain_trainer.cli.trace import trace;"
        f"trace(['summary', {str(run)!r}], standalone_mode=False);"
        "print(sorted({'torch', 'mujoco', 'numpy'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"
