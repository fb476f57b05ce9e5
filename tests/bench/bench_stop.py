"""How soon a run has ended once it is asked to: a rank by itself, and the whole command."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.result import Result, against
from tests.support.rank_command import COMMAND, environment, write_attempt

from drivetrain_api.artifacts.run_summary import RunSummary
from drivetrain_trainer.evidence.checkpoint_catalog import CheckpointCatalog

DRIVETRAIN = str(Path(sys.executable).with_name("drivetrain"))
RUNS = 5
RANK_LIMIT = 1.5
COMMAND_LIMIT = 4.0
LEARNT_STEPS = 400
"""Environment steps by which the run has learnt for a while."""
START_LIMIT = 180.0
STOP_LIMIT = 60.0
TASK = "half_cheetah"
TRAINING: dict[str, Any] = {
    "algo": {"name": "sac", "num_envs": 8, "learning_starts": 10},
    "task": {"name": TASK},
    "training": {"total_env_steps": 10**7, "logger": "none", "log_interval": 5},
    "evaluator": {"interval": None, "target": None},
}


def measure() -> list[Result]:
    """Medians against the limits, the checkpoint's write included."""
    ranks = [stop_rank() for _ in range(RUNS)]
    commands = [stop_command() for _ in range(RUNS)]
    metric = "seconds from SIGTERM to the exit, the checkpoint's write included"
    return [
        against(
            "stop_rank",
            f"{metric}, of a rank by itself",
            ranks,
            [RANK_LIMIT],
            reference_name="limit",
            target=1.0,
            better="lower",
        ),
        against(
            "stop_command",
            f"{metric}, of drivetrain run",
            commands,
            [COMMAND_LIMIT],
            reference_name="limit",
            target=1.0,
            better="lower",
        ),
    ]


def stop_rank() -> float:
    """A rank without a launcher, of networks as large as the preset's."""
    with tempfile.TemporaryDirectory() as folder:
        write_attempt(Path(folder), TRAINING)
        return _stopped(COMMAND, Path(folder), code=75)


def stop_command() -> float:
    """Operator, launcher, torchrun and rank, as a user runs them."""
    settings = [
        "algo.num_envs=8",
        "algo.learning_starts=10",
        "training.total_env_steps=10000000",
        "training.logger=none",
        "training.log_interval=5",
        "evaluator.interval=null",
    ]
    with tempfile.TemporaryDirectory() as folder:
        command = [DRIVETRAIN, "run", "--algo", "sac", "--task", TASK, *settings]
        return _stopped(command, Path(folder), code=130)


def _stopped(command: list[str] | tuple[str, ...], folder: Path, *, code: int) -> float:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=log, stderr=log)
        try:
            _await_learning(process, folder)
            began = time.perf_counter()
            process.send_signal(signal.SIGTERM)
            found = process.wait(STOP_LIMIT)
            took = time.perf_counter() - began
        finally:
            process.kill()
            process.wait()
    words = (folder / "log").read_text(errors="replace")[-2000:]
    (directory,) = folder.glob("logs/*/*/*")
    if found != code or CheckpointCatalog(directory / "checkpoints").latest() is None:
        raise RuntimeError(f"ended with {found}, not in order: {words}")
    return took


def _await_learning(process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + START_LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        for path in folder.glob("logs/*/*/*/run_summary.json"):
            summary = RunSummary.from_json(path.read_text())
            if summary.total_env_steps >= LEARNT_STEPS:
                return
        time.sleep(0.05)
    raise RuntimeError(f"did not learn: {(folder / 'log').read_text(errors='replace')[-2000:]}")
