"""The last report fits, is ASCII, and is written where it should be, or a warning says why not."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_summary import RunSeeds, RunSummary
from drivetrain_api.digest import TERMINATION_LIMIT, Digest, decode
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.status import Artifact, Progress
from drivetrain_trainer.launcher.digest import (
    decimal,
    final_digest,
    plain_text,
    summarise,
    write_termination_log,
)
from drivetrain_trainer.launcher.outcome import Verdict

SUMMARY = RunSummary(
    status=RunStatus.FAILED,
    algo="sac",
    task="hopper",
    sim_backend="mujoco",
    log_dir="/storage/logs/run",
    seeds=RunSeeds(run=0, algo=0, env=0),
    start_time_utc=datetime(2026, 1, 1, tzinfo=UTC),
    completed_iterations=7,
    total_env_steps=640,
    wall_time_sec=12.34567891,
    final_mean_reward=-1.5,
    best_mean_reward=1e-9,
    evaluated_return=3.0,
    best_evaluated_return=4.0,
    final_env_steps_per_sec=123456789.0,
    wandb_run_url="https://wandb.example/runs/1",
    telemetry={
        "reports": 9,
        "nonfinite_values": 0,
        "backends": [
            {"name": "jsonl", "written": 9, "lost": 0},
            {"name": "wandb", "written": 2, "lost": 7},
        ],
    },
    error_type="ValueError",
    error="Überlauf\n" * 400,
)


def test_the_summary_is_digested(tmp_path: Path) -> None:
    digest = summarise(SUMMARY, tmp_path, tmp_path / "logs" / "run")
    assert digest.status == "failed"
    assert (digest.completed_iterations, digest.total_env_steps) == (7, 640)
    assert digest.wall_time_seconds == "12.3457"
    assert digest.final_mean_reward == "-1.5"
    assert digest.best_mean_reward == "1e-09"
    assert digest.evaluated_return == "4"
    assert digest.final_env_steps_per_sec == "1.23457e+08"
    assert digest.run_directory == "logs/run"
    assert digest.wandb_run_url == "https://wandb.example/runs/1"
    assert digest.lost_records == 7
    assert digest.error is not None
    assert digest.error.startswith("?berlauf ?berlauf")
    assert len(digest.error) == 200


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), (float("nan"), None), (float("inf"), None), (0.0, "0"), (-0.1, "-0.1")],
)
def test_figures_are_decimal_strings(value: float | None, expected: str | None) -> None:
    assert decimal(value) == expected


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(message=st.text(max_size=3000), error=st.text(max_size=3000), artifacts=st.integers(0, 16))
def test_whatever_is_said_the_message_fits_and_is_a_report(
    tmp_path: Path, message: str, error: str, artifacts: int
) -> None:
    path = tmp_path / "log"
    summary = SUMMARY.model_copy(update={"error": error})
    digest = final_digest(
        3,
        Verdict(ExitCode.BROKEN, message, "E"),
        progress=Progress(env_steps=2**62, iteration=2**62, mean_reward="1e300"),
        summary=summarise(summary, tmp_path, tmp_path / "run"),
        artifacts=tuple(
            Artifact(name="last_checkpoint", uri="x" * 200, sha256="0" * 64)
            for _ in range(artifacts)
        ),
    )
    write_termination_log(path, digest, create=True)
    content = path.read_bytes()
    assert len(content) <= TERMINATION_LIMIT
    found = decode(content.decode("ascii"), TERMINATION_LIMIT)
    assert found is not None
    assert (found.attempt, found.exit_code, found.progress) == (3, 3, digest.progress)
    assert found.message == digest.message[: len(found.message)]


def test_text_is_one_line_of_ascii() -> None:
    assert plain_text("a\n\tb\x00ä", 100) == "a b??"
    assert plain_text("x" * 50, 10) == "xxxxxxx..."


DIGEST = Digest(attempt=1, exit_code=0, message="fine")


def test_an_existing_file_is_written_in_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("y" * 5000)
    inode = path.stat().st_ino
    write_termination_log(path, DIGEST, create=False)
    assert path.stat().st_ino == inode
    assert decode(path.read_text(), TERMINATION_LIMIT) == DIGEST


def test_a_file_that_nobody_asked_for_is_not_made(tmp_path: Path) -> None:
    with capture_logs() as logs:
        write_termination_log(tmp_path / "log", DIGEST, create=False)
    assert not (tmp_path / "log").exists()
    assert logs == []


@pytest.mark.parametrize("where", ["absent/log", "folder", "pipe"])
def test_one_that_cannot_be_written_costs_a_warning(tmp_path: Path, where: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with capture_logs() as logs:
        write_termination_log(tmp_path / where, DIGEST, create=True)
    (entry,) = logs
    assert entry["event"] == "termination message cannot be written"
    assert entry["path"] == str(tmp_path / where)
