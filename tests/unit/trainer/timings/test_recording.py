"""Recording stages from code of one's own: what is written, and by which clock."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from drivetrain_api.timings.store import TimingsDirectory, TimingsError
from drivetrain_trainer.hardware.record import read_hardware
from drivetrain_trainer.timings import record_timing, recording, timed_stage


def test_a_stage_is_on_the_disk_with_this_process_hardware_once_the_call_returns(
    tmp_path: Path,
) -> None:
    record_timing(tmp_path, "render_videos", 81.25, run_idx=0, label="seed 3", invocation="i1")
    here = read_hardware()
    assert json.loads((tmp_path / "timings.json").read_text()) == {
        "render_videos": {
            "total_seconds": 81.25,
            "runs": [
                {
                    "seconds": 81.25,
                    "hardware_id": here.hardware_id,
                    "run_idx": 0,
                    "label": "seed 3",
                    "invocation": "i1",
                }
            ],
        }
    }
    hardware = json.loads((tmp_path / "timings_hardware.json").read_text())
    assert hardware["schema_version"] == 1
    assert list(hardware["hardware"]) == [here.hardware_id]


def test_an_interrupted_experiment_keeps_the_stages_that_ended(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys; from drivetrain_trainer.timings import record_timing\n"
        "place = pathlib.Path(sys.argv[1])\n"
        "record_timing(place, 'sac_train', 3.0, run_idx=0)\n"
        "record_timing(place, 'checkpoint_save', 0.5, run_idx=0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
        "record_timing(place, 'evaluation', 1.0, run_idx=0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=120)
    assert list(TimingsDirectory(tmp_path).load().timings.root) == ["sac_train", "checkpoint_save"]


@pytest.mark.parametrize("seconds", [-0.5, float("nan"), float("inf")])
def test_a_time_that_cannot_be_is_refused_and_nothing_is_written(
    tmp_path: Path, seconds: float
) -> None:
    with pytest.raises(ValueError, match=r"seconds of stage 'x' are .*finite and 0 or more"):
        record_timing(tmp_path, "x", seconds)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("stage", "fields", "words"),
    [
        ("x", {"run_idx": -1}, r"run_idx is -1"),
        ("x", {"label": ""}, r"label is ''"),
        ("", {}, r"cannot record stage ''"),
    ],
)
def test_names_and_indices_that_cannot_be_are_named(
    tmp_path: Path, stage: str, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        record_timing(tmp_path, stage, 1.0, **fields)
    assert not (tmp_path / "timings.json").exists()


def test_a_file_that_is_refused_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "timings.json").write_text("{")
    with pytest.raises(TimingsError, match=r"timings\.json: not a Timings: torn"):
        record_timing(tmp_path, "x", 1.0)
    assert (tmp_path / "timings.json").read_text() == "{"


def test_setting_the_wall_clock_back_changes_no_duration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, steady = iter(range(10**9, 0, -3600)), iter([100.0, 102.5])
    monkeypatch.setattr(time, "time", lambda: float(next(wall)))
    monkeypatch.setattr(recording, "_monotonic", lambda: next(steady))
    with timed_stage(tmp_path, "sac_train", run_idx=0):
        assert time.time() > time.time()
    assert TimingsDirectory(tmp_path).load().timings.root["sac_train"].total_seconds == 2.5


def test_the_clock_is_the_kernels_monotonic_one() -> None:
    assert recording._monotonic is time.monotonic
    assert time.get_clock_info("monotonic").monotonic
    assert not time.get_clock_info("monotonic").adjustable


def test_a_stage_that_raises_is_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="boom"), timed_stage(tmp_path, "sac_train"):
        raise RuntimeError("boom")
    assert list(tmp_path.iterdir()) == []


def test_importing_it_costs_nothing_heavy() -> None:
    code = (
        "import sys, drivetrain_trainer.timings\n"
        "print(sorted({'torch', 'numpy', 'mujoco', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "[]"
