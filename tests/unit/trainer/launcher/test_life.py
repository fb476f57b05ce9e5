"""Where a rank was, from a file that outlives it; hostile files say nothing."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from drivetrain_api.artifacts.shutdown import Classification, LifePhase, Owner
from drivetrain_trainer.launcher.life import Life, LifeMark, read_life, report_of_the_killed

KILLED = """
import os, signal, sys
from pathlib import Path
from drivetrain_api.artifacts.shutdown import LifePhase
from drivetrain_trainer.launcher.life import Life, LifeMark
LifeMark(Path(sys.argv[1])).write(Life(LifePhase.LEARNING, 7, 5, 28))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("phase", [*LifePhase])
@pytest.mark.parametrize("tick", [None, 0, 2**40])
def test_what_was_written_is_read(tmp_path: Path, phase: LifePhase, tick: int | None) -> None:
    life = Life(phase, tick, 3, 4)
    LifeMark(tmp_path / "life").write(life)
    assert read_life(tmp_path / "life") == life


def test_it_is_there_from_the_start_and_needs_no_file(tmp_path: Path) -> None:
    LifeMark(tmp_path / "life")
    LifeMark().write(Life(LifePhase.FINISH, 1, 1, 1))
    assert read_life(tmp_path / "life") == Life(LifePhase.START_UP, None, 0, 0)


def test_it_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "life"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert read_life(path) == Life(LifePhase.LEARNING, 7, 5, 28)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 31,
        bytes(33),
        struct.pack("=qqqq", len(LifePhase), 0, 0, 0),
        struct.pack("=qqqq", -1, 0, 0, 0),
        struct.pack("=qqqq", 0, -2, 0, 0),
        struct.pack("=qqqq", 0, 0, -1, 0),
    ],
)
def test_what_is_no_such_file_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "life"
    assert read_life(path) is None
    path.write_bytes(content)
    assert read_life(path) is None


def test_the_report_of_a_killed_rank_is_one() -> None:
    report = report_of_the_killed(
        Life(LifePhase.CHECKPOINT, 7, 5, 28),
        "rank 0 was killed by SIGKILL in checkpoint",
        Classification.LEARNER_FAILURE,
        Owner.LEARNER,
        world_size=2,
    )
    assert (report.phase, report.coordination_tick, report.iteration) == (
        LifePhase.CHECKPOINT,
        7,
        5,
    )
    assert type(report).from_json(report.to_json()) == report
