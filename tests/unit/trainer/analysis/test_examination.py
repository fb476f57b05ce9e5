"""Runs on disk: live, finished, killed; by event file or JSONL; named or the newest below."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.event_files import event_path
from tests.support.measured_run import BEGAN, make_measured_run, reports, write_jsonl
from tests.support.runtime_manifests import completed_manifest, sharing_evidence

from drivetrain_trainer.analysis.condition import State
from drivetrain_trainer.analysis.examination import Examination, examine
from drivetrain_trainer.analysis.findings import Problem
from drivetrain_trainer.analysis.window import Span
from drivetrain_trainer.cli.diagnose import diagnose

LAST = Span(seconds=30.0)
COUNT = 40
LAST_REPORT = BEGAN + COUNT - 1


def at(found: Path, moment: float) -> Path:
    """The run, with its summary last written then."""
    os.utime(found / "run_summary.json", (moment, moment))
    return found


def look(run: Path, *, after: float = 1.0) -> Examination:
    return examine(at(run, LAST_REPORT), LAST, now=LAST_REPORT + after)


def problems(found: Examination) -> list[Problem]:
    return [one.problem for one in found.diagnosis.findings]


@pytest.mark.parametrize("jsonl", [False, True], ids=["event file", "metrics.jsonl"])
def test_a_balanced_run_by_either_file(tmp_path: Path, *, jsonl: bool) -> None:
    rows = reports(COUNT)
    run = make_measured_run(tmp_path / "run", rows)
    if jsonl:
        write_jsonl(run, rows)
    found = look(run)
    assert found.diagnosis.balanced
    assert found.diagnosis.steps_per_second == pytest.approx(400.0)
    assert found.diagnosis.rows_per_second == pytest.approx(4 * 256 / 0.020)
    assert found.window.reports == 31


@pytest.mark.parametrize(
    ("summary", "after", "state", "says"),
    [
        ({"status": "running"}, 5.0, State.LIVE, "Live: it last wrote 5 s ago."),
        ({"status": "running"}, 9.0, State.LIVE, "9 s ago"),
        ({"status": "running"}, 10.0, State.QUIET, "for 10 s (a report came every 1 s)"),
        ({"status": "running"}, 29.0, State.QUIET, "it has just been killed"),
        ({"status": "running"}, 30.0, State.LOST, "nothing has been written for 30 s"),
        ({"status": "running"}, 3600.0, State.LOST, "nothing has been written for 1 h"),
        ({"status": "completed"}, 200.0, State.COMPLETED, "Completed 3 min 20 s ago."),
        ({"status": "interrupted"}, 5.0, State.INTERRUPTED, "Interrupted 5 s ago."),
        (
            {"status": "failed", "error_type": "OutOfMemoryError", "error": "no room"},
            5.0,
            State.FAILED,
            "Failed 5 s ago. OutOfMemoryError: no room",
        ),
    ],
)
def test_how_the_run_stands(
    tmp_path: Path, summary: dict[str, Any], after: float, state: State, says: str
) -> None:
    found = look(make_measured_run(tmp_path, reports(COUNT), **summary), after=after)
    assert found.condition.state is state
    assert says in found.condition.says


def test_a_summary_written_after_the_last_report_counts(tmp_path: Path) -> None:
    """A long evaluation reports nothing, but the summary is written at its end."""
    run = at(make_measured_run(tmp_path, reports(COUNT), status="running"), LAST_REPORT + 100)
    found = examine(run, LAST, now=LAST_REPORT + 105)
    assert found.condition.state is State.LIVE


def test_a_slow_run_is_not_called_lost_between_two_reports(tmp_path: Path) -> None:
    rows = reports(COUNT)
    run = make_measured_run(tmp_path, rows, status="running")
    slow = [
        {"step": n + 1, "wall_time": BEGAN + 60.0 * n, "iteration": n + 1, "values": values}
        for n, values in enumerate(rows)
    ]
    event_path(run).unlink()
    head = json.dumps({"metric_schema_version": 1, "attempt": 1, "start_env_steps": 0})
    (run / "metrics.jsonl").write_text("\n".join([head, *map(json.dumps, slow)]) + "\n")
    last = BEGAN + 60.0 * (COUNT - 1)
    assert examine(at(run, last), LAST, now=last + 290).condition.state is State.LIVE
    assert examine(at(run, last), LAST, now=last + 310).condition.state is State.QUIET
    assert examine(at(run, last), LAST, now=last + 1300).condition.state is State.LOST


def test_the_files_of_a_killed_run_are_read_to_where_they_are_whole(tmp_path: Path) -> None:
    run = make_measured_run(tmp_path, reports(COUNT), status="running")
    events = event_path(run)
    events.write_bytes(events.read_bytes()[:-30])
    found = look(run, after=500.0)
    assert found.condition.state is State.LOST
    assert found.window.reports == 31
    assert found.diagnosis.balanced


@pytest.mark.parametrize(("steps", "iterations"), [(800, 100), (4000, 500)])
def test_what_is_done_is_told_by_whichever_is_further(
    tmp_path: Path, steps: int, iterations: int
) -> None:
    """The summary of a killed run may be older than its reports, which end at 3,200."""
    run = make_measured_run(
        tmp_path,
        reports(COUNT),
        status="running",
        total_env_steps=steps,
        completed_iterations=iterations,
    )
    found = look(run, after=500.0)
    assert (found.env_steps, found.iterations) == max((steps, iterations), (3200, 400))


def test_the_newest_run_below_a_folder_is_taken(tmp_path: Path) -> None:
    for number, name in enumerate(("b-new", "a-old", "c-older")):
        run = make_measured_run(tmp_path / "logs" / "sac" / "toy" / name, reports(COUNT))
        at(run, LAST_REPORT - 10 * number)
    os.utime(tmp_path / "logs/sac/toy/b-new", (LAST_REPORT, LAST_REPORT))
    for old in ("a-old", "c-older"):
        for path in (
            tmp_path / "logs/sac/toy" / old,
            tmp_path / "logs/sac/toy" / old / "run_config.json",
        ):
            os.utime(path, (LAST_REPORT - 10, LAST_REPORT - 10))
    found = examine(tmp_path, LAST, now=LAST_REPORT)
    assert (found.run.name, found.others) == ("b-new", 2)


def test_a_run_without_a_configuration_is_read_with_less(tmp_path: Path) -> None:
    found = look(make_measured_run(tmp_path, reports(COUNT), config=False))
    assert found.diagnosis.balanced
    assert found.diagnosis.rows_per_second is None


def test_telemetry_losses_are_told(tmp_path: Path) -> None:
    telemetry = {
        "reports": 40,
        "nonfinite_values": 0,
        "overfull_timelines": 3,
        "backends": [
            {"name": "tensorboard", "written": 40, "lost": 0},
            {"name": "wandb", "written": 10, "lost": 30, "error": "no route to host"},
        ],
    }
    found = look(make_measured_run(tmp_path, reports(COUNT), telemetry=telemetry))
    assert problems(found) == [Problem.ACCOUNTED_TIME, Problem.TELEMETRY_LOSS]
    overfull, losses = found.diagnosis.findings
    assert overfull.says.startswith("3 reports of this attempt")
    assert losses.details == ("wandb: 30 of 40 records lost; first error: no route to host",)


def slow_collector(number: int) -> dict[str, float]:
    return {
        "Perf/learner_collector_wait_ms": 14.0,
        "Perf/learning_time": 0.004 if number >= 12 else 0.0,
    }


def test_the_command_says_it_in_words(tmp_path: Path) -> None:
    run = at(make_measured_run(tmp_path / "run", reports(COUNT, slow_collector)), LAST_REPORT)
    result = CliRunner().invoke(diagnose, [str(run), "--last", "40 reports"])
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    for part in (
        "sac on half_cheetah, mujoco; 1 rank of 8 environments on cpu, fp32.",
        "3,200 of 100,000 environment steps in 400 iterations.",
        "Looked at: the last 27 reports, 26 s; 13 reports of warm-up left out.",
        "400 steps/s, 51,200 replay rows/s, 80 steps/s with evaluations and checkpoints.",
        "1. Bottleneck, at most 14 ms of an iteration (70 %): collector-wait",
        "Collector Wait is 70 % of Iter Wall (14 ms of 20 ms)",
        "Check first: - Env Step (14 ms): raise training.simThreads (1), a rank has 4 CPUs",
        "training.traceEnabled, then drivetrain trace summary",
    ):
        assert part in text
    assert max(map(len, result.output.splitlines())) <= 100


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        (None, "on cuda:0, fp32; MPS Disabled."),
        ({"configured": "mps", "effective": "mps", "validated": True}, "; MPS on."),
        ({"effective": "mps", "validated": False}, "; MPS on, not validated."),
        ({"effective": "mps", "ambient_server": True}, "; MPS ambient."),
        ({"effective": None}, "; MPS off."),
    ],
)
def test_how_the_gpu_is_shared_is_told_where_it_is_known(
    tmp_path: Path, manifest: dict[str, Any] | None, says: str
) -> None:
    seen = manifest and completed_manifest(cuda_process_sharing=sharing_evidence(**manifest))
    run = make_measured_run(tmp_path, reports(COUNT), device="cuda:0", runtime_manifest=seen)
    assert says in " ".join(CliRunner().invoke(diagnose, [str(run)]).output.split())


def test_lines_keep_numbers_and_units_together(tmp_path: Path) -> None:
    run = make_measured_run(tmp_path, reports(COUNT, slow_collector))
    result = CliRunner().invoke(diagnose, [str(run)], env={"COLUMNS": "60"})
    starts = {line.split()[0] for line in result.output.splitlines() if line.strip()}
    assert not starts & {"ms", "s", "%", "min"}


def test_a_balanced_run_is_told_so_and_where_its_trace_is(tmp_path: Path) -> None:
    run = make_measured_run(tmp_path / "run", reports(COUNT))
    (run / "traces").mkdir()
    result = CliRunner().invoke(diagnose, [str(run)])
    assert "Balanced: neither side waits for the other" in result.output
    assert f"drivetrain trace summary {run / 'traces'}" in " ".join(result.output.split())


def test_nothing_but_warm_up_is_told(tmp_path: Path) -> None:
    run = make_measured_run(tmp_path, reports(COUNT, lambda _: {"Perf/learning_time": 0.0}))
    result = CliRunner().invoke(diagnose, [str(run)])
    assert "All of it is warm-up: the learner does not learn yet." in " ".join(
        result.output.split()
    )


def test_the_command_as_json(tmp_path: Path) -> None:
    run = make_measured_run(tmp_path, reports(COUNT, slow_collector), status="running")
    result = CliRunner().invoke(diagnose, [str(run), "--json"])
    assert result.exit_code == 0
    found = json.loads(result.output)
    assert found["condition"]["state"] in {"live", "lost"}
    assert found["learner"]["wall_ms"] == pytest.approx(20.0)
    assert found["findings"][0]["problem"] == "collector-wait"
    assert found["findings"][0]["cost_ms"] == pytest.approx(14.0)
    assert found["setup"]["num_envs"] == 8
    assert found["balanced"] is False


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["absent"], "absent does not exist"),
        (["."], "no run in ."),
        ([".", "--last", "soon"], "'soon' is no span: give seconds (30s)"),
    ],
)
def test_what_cannot_be_diagnosed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(diagnose, arguments)
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.split())


def test_a_run_of_another_metric_schema_is_refused(tmp_path: Path) -> None:
    run = make_measured_run(tmp_path, reports(3))
    summary = json.loads((run / "run_summary.json").read_text())
    (run / "run_summary.json").write_text(json.dumps({**summary, "metric_schema_version": 2}))
    result = CliRunner().invoke(diagnose, [str(run)])
    assert result.exit_code == 2
    assert "metric_schema_version is 2" in result.stderr


def test_a_run_that_has_reported_nothing_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(diagnose, [str(make_measured_run(tmp_path, []))])
    assert result.exit_code == 2
    assert "has reported nothing yet" in result.stderr
