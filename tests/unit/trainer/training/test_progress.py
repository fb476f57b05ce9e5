from __future__ import annotations

import math
from pathlib import Path

import pytest

from drivetrain_api.digest import PROGRESS_LIMIT, Digest, decode
from drivetrain_trainer.training.progress import ProgressReporter, decimal


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, None), (math.nan, None), (math.inf, None), (1234.5678912, "1234.57"), (0.0, "0")],
)
def test_figures_are_decimal_strings_or_absent(value: float | None, text: str | None) -> None:
    assert decimal(value) == text


def read(path: Path) -> Digest:
    digest = decode(path.read_text(), PROGRESS_LIMIT)
    assert digest is not None
    return digest


def test_the_file_is_written_at_most_once_a_second_but_at_once_when_forced(tmp_path: Path) -> None:
    now = 100.0
    path = tmp_path / "progress.json"
    reporter = ProgressReporter(path, attempt=2, target_env_steps=1000, clock=lambda: now)
    reporter.note({"Perf/total_fps": 50.0, "Train/mean_reward": -3.25})
    reporter.write(1, 100)
    reporter.write(2, 200)
    first = read(path).progress
    assert first is not None
    assert (first.env_steps, first.eta_seconds) == (100, 18)
    assert (first.steps_per_second, first.mean_reward) == ("50", "-3.25")
    now += 1.0
    reporter.write(3, 300)
    later = read(path).progress
    assert later is not None
    assert later.env_steps == 300
    reporter.write(4, 400, force=True)
    forced = read(path).progress
    assert forced is not None
    assert forced.env_steps == 400
    assert read(path).attempt == 2


def test_without_a_launcher_nothing_is_written(tmp_path: Path) -> None:
    reporter = ProgressReporter(None, attempt=1, target_env_steps=None)
    reporter.write(1, 1, force=True)
    assert list(tmp_path.iterdir()) == []
    assert reporter.progress(1, 1).eta_seconds is None
