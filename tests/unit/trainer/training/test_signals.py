"""SIGTERM at any moment of a rank's life: its outcome is right and nothing is left."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from rank_command import COMMAND, environment, write_attempt
from tiny_run import TINY

from drivetrain_api.artifacts.outcome import RankOutcome
from drivetrain_api.artifacts.run_summary import RunSummary
from drivetrain_api.compose import layered
from drivetrain_trainer.evidence.checkpoint_catalog import CheckpointCatalog

TIMEOUT = 60.0
INTERVAL = 20


def start(folder: Path) -> subprocess.Popen[bytes]:
    spec: dict[str, Any] = layered(
        TINY,
        {
            "training": {"total_env_steps": 10**6},
            "checkpoint": {"interval": INTERVAL, "keep": 2, "save_replay": True},
        },
    )
    write_attempt(folder, spec)
    (folder / "scratch").mkdir()
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [*COMMAND, "--scratch", "scratch"],
            cwd=folder,
            env=environment(),
            stdout=log,
            stderr=log,
        )


@dataclass(frozen=True)
class Life:
    """A rank and the folder that it works in."""

    folder: Path
    rank: psutil.Process


def spawned(life: Life) -> bool:
    return bool(life.rank.children())


def claimed(life: Life) -> bool:
    return any(life.folder.glob("logs/*/*/*/run_summary.json"))


def warming_up(life: Life) -> bool:
    return (life.folder / "scratch" / "progress.json").exists()


def training(life: Life) -> bool:
    return any(life.folder.glob("logs/*/*/*/checkpoints/step_*"))


def in_a_checkpoint(life: Life) -> bool:
    return any(life.folder.glob("logs/*/*/*/checkpoints/.partial-step_*/*"))


@pytest.mark.parametrize("moment", [spawned, claimed, warming_up, training, in_a_checkpoint])
def test_a_rank_stops_with_what_was_due(tmp_path: Path, moment: Callable[[Life], bool]) -> None:
    process = start(tmp_path)
    rank = psutil.Process(process.pid)
    deadline = time.monotonic() + TIMEOUT
    while not moment(Life(tmp_path, rank)):
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline
    children = rank.children(recursive=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT) == 75, (tmp_path / "log").read_text()

    outcome = RankOutcome.from_json((tmp_path / "scratch" / "outcome-rank0.json").read_text())
    assert outcome.exit_code == 75
    (summary,) = tmp_path.glob("logs/*/*/*/run_summary.json")
    assert RunSummary.from_json(summary.read_text()).status == "interrupted"
    catalog = CheckpointCatalog(summary.parent / "checkpoints")
    for path in catalog.paths():
        assert not path.name.startswith(".")
    latest = catalog.latest()
    assert (latest.env_steps if latest else 0) == outcome.env_steps
    if latest is not None:
        latest.verify()
    assert not list((summary.parent / "checkpoints").glob(".partial-*"))
    assert all(not child.is_running() for child in children)
