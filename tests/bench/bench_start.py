"""How soon a run takes its first environment step, and how soon the help is there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.bench.result import Result, against

DRIVETRAIN = str(Path(sys.executable).with_name("drivetrain"))
RUNS = 5
FIRST_STEP_LIMIT = 6.0
HELP_LIMIT = 0.3


def measure() -> list[Result]:
    """Medians against the limits; the first run of each warms the file cache."""
    steps = [first_step() for _ in range(RUNS + 1)][1:]
    helps = [help_time() for _ in range(2 * RUNS + 1)][1:]
    return [
        against(
            "first_env_step",
            "seconds from the command to the first iteration's end",
            steps,
            [FIRST_STEP_LIMIT],
            reference_name="limit",
            target=1.0,
            better="lower",
        ),
        against(
            "help",
            "seconds of drivetrain --help",
            helps,
            [HELP_LIMIT],
            reference_name="limit",
            target=1.0,
            better="lower",
        ),
    ]


def first_step() -> float:
    """From the command to the wall time of the first report."""
    with tempfile.TemporaryDirectory() as folder:
        command = [DRIVETRAIN, "run", "--algo", "sac", "--task", "inverted_pendulum"]
        settings = ["training.total_env_steps=40", "training.log_interval=1"]
        began = time.time()
        subprocess.run([*command, *settings], cwd=folder, check=True, capture_output=True)
        (events,) = Path(folder).glob("logs/*/*/*/events.out.tfevents.*")
        accumulator = EventAccumulator(str(events))
        accumulator.Reload()
        return float(accumulator.Scalars("Train/iteration")[0].wall_time) - began


def help_time() -> float:
    """Wall seconds of ``drivetrain --help``."""
    began = time.perf_counter()
    subprocess.run([DRIVETRAIN, "--help"], check=True, capture_output=True)
    return time.perf_counter() - began
