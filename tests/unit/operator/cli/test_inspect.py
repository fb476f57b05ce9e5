from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from drivetrain_api.compose import parse_run
from drivetrain_api.status import (
    Condition,
    ConditionStatus,
    ConditionType,
    Phase,
    Progress,
    RunSummaryDigest,
    SoakDigest,
    SoakVerdict,
    TrainingRunStatus,
)
from drivetrain_operator.local.store import LocalStore
from drivetrain_operator.reconcile.decision import EventRecord, EventType

if TYPE_CHECKING:
    from click.testing import Result

Call = Callable[..., "Result"]


@pytest.fixture
def store(folder: Path) -> LocalStore:
    return LocalStore(folder / ".drivetrain")


def add(store: LocalStore, name: str, status: TrainingRunStatus) -> None:
    run = parse_run(
        {
            "metadata": {"name": name},
            "spec": {
                "algo": {"name": "sac"},
                "task": {"name": "ant"},
                "topology": {"ranksPerNode": 2},
            },
        }
    )
    store.apply(run, storage=Path("/data"), now=datetime.now(UTC) - timedelta(hours=3))
    store.set_status(name, status)


RUNNING = TrainingRunStatus(
    phase=Phase.RUNNING,
    restarts=1,
    progress=Progress(
        iteration=25,
        env_steps=250,
        target_env_steps=1000,
        percent=25,
        steps_per_second="1234.5678",
        mean_reward="-1.5",
        evaluated_return="17.25",
        best_evaluated_return="20",
        eta_seconds=3660,
        checkpoint_env_steps=200,
        at=datetime.now(UTC),
    ),
    conditions=(
        Condition(
            type=ConditionType.RUNNING,
            status=ConditionStatus.TRUE,
            reason="PodsRunning",
            message="attempt 1: 1 of 1 pods running",
            last_transition_time=datetime.now(UTC),
        ),
    ),
)


def test_the_table_has_a_row_for_each_run(store: LocalStore, call: Call) -> None:
    add(store, "b", RUNNING)
    add(store, "a", TrainingRunStatus(phase=Phase.COMPLETE))
    with store.lock("b"):
        result = call("status")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines == [
        [
            "NAME",
            "PHASE",
            "ALGO",
            "TASK",
            "RANKS",
            "PROGRESS",
            "ETA",
            "STEPS/S",
            "REWARD",
            "RESTARTS",
            "AGE",
        ],
        ["a", "Complete", "sac", "ant", "2", "-", "-", "-", "-", "0", "3h"],
        ["b", "Running", "sac", "ant", "2", "25%", "1h1m", "1234.6", "-1.5", "1", "3h"],
    ]
    assert result.stderr == ""


def test_a_run_that_nobody_drives_is_marked(store: LocalStore, call: Call) -> None:
    add(store, "b", RUNNING)
    result = call("status")
    assert "Running*" in result.stdout
    assert "nobody drives it" in result.stderr


def test_one_run_is_shown_in_full(store: LocalStore, call: Call) -> None:
    add(store, "b", RUNNING)
    add(store, "a", RUNNING)
    store.record("b", [EventRecord(EventType.WARNING, "Oops", "it fell")], datetime.now(UTC))
    out = call("status", "b").stdout
    assert "\na " not in out
    assert "+ Running: PodsRunning attempt 1: 1 of 1 pods running" in out
    assert "Warning Oops: it fell" in out
    assert f"Logs: {store.folder('b') / 'logs'}".replace(f"{store.root}", ".drivetrain") in out


def test_one_run_shows_what_its_trainer_reported(store: LocalStore, call: Call) -> None:
    add(store, "b", RUNNING)
    with store.lock("b"):
        lines = [line.strip() for line in call("status", "b").stdout.splitlines()]
    start = lines.index("Progress:")
    assert lines[start + 1 : start + 7] == [
        "[#######-----------------------] 25%  250 of 1,000 steps, iteration 25",
        "Speed:       1234.6 steps/s",
        "Left:        1h1m",
        "Reward:      -1.5 (mean of the last 100 episodes)",
        "Evaluated:   17.25 (best 20)",
        "Checkpoint:  at 200 steps",
    ]
    assert "Result:" not in lines


def test_a_run_that_is_over_shows_its_result_and_no_estimate(store: LocalStore, call: Call) -> None:
    summary = RunSummaryDigest(
        status="completed",
        total_env_steps=1_000_000,
        completed_iterations=2500,
        wall_time_seconds="7261.5",
        final_mean_reward="9301.25",
        evaluated_return="9400",
        final_evaluated_return="9350.5",
        threshold_missed=True,
        final_env_steps_per_sec="8123.45",
        run_directory="logs/sac/ant/x",
        wandb_run_url="https://wandb.example/team/project/runs/1",
        lost_records=3,
    )
    over = RUNNING.model_copy(update={"phase": Phase.COMPLETE, "run_summary": summary})
    add(store, "b", over)
    out = call("status", "b").stdout
    for words in (
        "Steps:         1,000,000",
        "Iterations:    2,500",
        "Speed:         8123.4 steps/s",
        "Evaluated:     9400",
        "Final:         9350.5, below evaluator.threshold",
        "Last attempt:  2h1m",
        "Directory:     logs/sac/ant/x",
        "Page:          https://wandb.example/team/project/runs/1",
        "Metrics:       3 records lost by a logger",
    ):
        assert words in out, words
    assert "Left:" not in out
    assert "1h1m" not in out


def test_the_verdict_of_a_soak_is_shown(store: LocalStore, call: Call) -> None:
    verdict = SoakDigest(
        verdict=SoakVerdict.FAILED,
        attempt=2,
        failure_classification="resource_leak",
        failure_reason="open file descriptors grew by 90",
        duration_seconds=1805,
        samples=361,
        peak_rss_bytes=3 << 30,
        rss_growth_bytes=0,
        residual_processes=1,
    )
    add(store, "b", RUNNING.model_copy(update={"soak": verdict}))
    out = call("status", "b").stdout
    for words in (
        "Soak:",
        "Verdict:      Failed",
        "Failure:      resource_leak",
        "Reason:       open file descriptors grew by 90",
        "Watched:      attempt 2 for 30m",
        "Peak memory:  3.0 GiB",
        "Left behind:  1 process",
    ):
        assert words in out, words
    assert "Peak GPU" not in out


def test_yaml_is_the_whole_object(store: LocalStore, call: Call) -> None:
    add(store, "b", RUNNING)
    add(store, "a", RUNNING)
    (one,) = yaml.safe_load_all(call("status", "b", "-o", "yaml").stdout)
    assert one["spec"]["topology"] == {"ranksPerNode": 2}
    assert one["status"]["progress"]["envSteps"] == 250
    assert len(list(yaml.safe_load_all(call("status", "-o", "yaml").stdout))) == 2


def test_unknown_and_broken_runs_are_named(store: LocalStore, call: Call) -> None:
    assert call("status").stderr == "no runs under .drivetrain\n"
    assert "no run 'x' under .drivetrain; stored: none" in call("status", "x").stderr
    add(store, "b", RUNNING)
    result = call("status", "x", "--state-dir", ".drivetrain")
    assert (result.exit_code, result.stderr.endswith("stored: b\n")) == (2, True)
    (store.folder("b") / "trainingrun.json").write_text("[]")
    result = call("status")
    assert result.exit_code == 2
    assert "trainingrun.json: holds a list, not an object" in result.stderr
