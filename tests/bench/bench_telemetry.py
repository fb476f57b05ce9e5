"""What the training logger, the live panel and the stats tracker cost an iteration.

HalfCheetah at its preset, on a terminal of 120 columns. The processor time of reports, statistics,
summary and progress on the training thread, and all of that of the backends' and the panel's
threads, is held against the training thread's own in the same run: a share that other processes
hardly change. Beside it are pairs of runs with it all and with none of it; on a machine that others
use their noise is larger than the limit. What an update records for its own statistics is in both.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tempfile
import termios
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.bench.result import Result, against
from tests.support.rank_command import environment, write_attempt

PAIRS = 3
ENV_STEPS = 1400
LIMIT = 0.01
ROWS, COLUMNS = 40, 120


@dataclass(frozen=True)
class Measured:
    """Milliseconds an iteration of one run; see `telemetry_rank.Clocks`."""

    wall: float
    processor: float
    inline: float
    clocked: float
    backends: float
    panel: float

    @property
    def training_thread(self) -> float:
        """Of telemetry, were the iteration as long as its processor time."""
        return self.inline - self.clocked + self.clocked * self._busy

    @property
    def everything(self) -> float:
        """The same with telemetry's own threads, as if they had no processor of their own."""
        return self.training_thread + self.backends + self.panel * self._busy

    @property
    def _busy(self) -> float:
        """What goes by the clock costs less of an iteration that is not kept waiting."""
        return min(self.processor / self.wall, 1.0)


def measure() -> list[Result]:
    """With and without telemetry in turn, the order changing with each pair."""
    runs: dict[str, list[Measured]] = {"on": [], "off": []}
    for pair in range(PAIRS):
        for mode in ("on", "off") if pair % 2 else ("off", "on"):
            runs[mode].append(run(mode))
    on, off = runs["on"], runs["off"]
    processor = [one.processor for one in on]
    walls = [one.wall for one in off]
    return [
        against(
            "telemetry_everything",
            "ms of processor time of telemetry in an iteration, HalfCheetah",
            [one.everything for one in on],
            processor,
            reference_name="the training thread's",
            target=LIMIT,
            better="lower",
        ),
        against(
            "telemetry_training_thread",
            "the same on the training thread, which waits for it",
            [one.training_thread for one in on],
            processor,
            reference_name="the training thread's",
            target=LIMIT,
            better="lower",
        ),
        against(
            "telemetry_paired_processor",
            "ms of processor time of the training thread in an iteration",
            processor,
            [one.processor for one in off],
            reference_name="no telemetry",
            target=1 + LIMIT,
            better="lower",
        ),
        against(
            "telemetry_paired_wall",
            "iteration wall, ms",
            [one.wall for one in on],
            walls,
            reference_name=f"no telemetry, {min(walls):.4g} to {max(walls):.4g}",
            target=1 + LIMIT,
            better="lower",
        ),
    ]


def run(mode: str) -> Measured:
    """One rank in a process of its own, whose standard output is a terminal."""
    with tempfile.TemporaryDirectory() as folder:
        write_attempt(
            Path(folder),
            {
                "algo": {"name": "sac", "learningStarts": 10},
                "task": {"name": "half_cheetah"},
                "training": {
                    "totalEnvSteps": ENV_STEPS,
                    "logger": "tensorboard" if mode == "on" else "none",
                },
                "evaluator": {"interval": None},
                "checkpoint": {"interval": 10_000_000},
            },
        )
        return Measured(**json.loads(_on_terminal(mode, folder).splitlines()[-1]))


def _on_terminal(mode: str, folder: str) -> str:
    """Standard error of the rank."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (ROWS, COLUMNS))
    command = [sys.executable, "-m", "tests.bench.telemetry_rank", mode]
    env = {**environment(), "TERM": "xterm-256color", "PYTHONPATH": str(Path.cwd())}
    process = subprocess.Popen(
        command, cwd=folder, env=env, stdout=its, stderr=subprocess.PIPE, text=True
    )
    os.close(its)
    reader = threading.Thread(target=_drain, args=(ours,), daemon=True)
    reader.start()
    _, errors = process.communicate(timeout=600)
    reader.join()
    os.close(ours)
    if process.returncode:
        raise RuntimeError(f"the rank ended with {process.returncode}: {errors}")
    return errors


def _drain(terminal: int) -> None:
    """Take what the panel draws, as a terminal does."""
    while True:
        try:
            if not os.read(terminal, 65_536):
                return
        except OSError:  # the other side is closed
            return
