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
    TrainingRunStatus,
)
from drivetrain_operator.cli.inspect import age
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
        env_steps=250, target_env_steps=1000, steps_per_second="1234.5678", mean_reward="-1.5"
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
            "STEPS/S",
            "REWARD",
            "RESTARTS",
            "AGE",
        ],
        ["a", "Complete", "sac", "ant", "2", "0", "3h"],
        ["b", "Running", "sac", "ant", "2", "25%", "1234.6", "-1.5", "1", "3h"],
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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (200_000, "2d")],
)
def test_ages(seconds: int, text: str) -> None:
    assert age(seconds) == text
