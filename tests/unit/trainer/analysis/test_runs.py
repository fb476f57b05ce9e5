from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from event_files import STAMPED, event_path, make_run, report, restart, write_events

from drivetrain_api.metrics import UnknownMetricError
from drivetrain_trainer.analysis.runs import RunFolder, RunFolderError
from drivetrain_trainer.analysis.schema_check import SchemaError


def test_series_over_all_attempts(tmp_path: Path) -> None:
    make_run(tmp_path, summary=STAMPED)
    first = [report(s, {"Train/mean_reward": 1.0, "Perf/total_fps": 5.0}) for s in (10, 20, 30)]
    second = [restart(21), report(30, {"Train/mean_reward": math.nan}), report(40, {"reward/r": 2})]
    write_events(event_path(tmp_path, 1), first)
    write_events(event_path(tmp_path, 2), second)
    metrics = RunFolder.open(tmp_path).metrics()
    assert metrics.tags == ("Train/mean_reward", "Perf/total_fps", "reward/r")
    reward = metrics.series("Train/mean_reward")
    assert reward.steps.tolist() == [10, 20, 30]
    assert repr(reward.values.tolist()) == "[1.0, 1.0, nan]"
    assert metrics.series("Perf/total_fps").steps.tolist() == [10, 20]
    assert metrics.series("reward/r").values.tolist() == [2.0]
    assert len(metrics.series("Loss/actor")) == 0
    assert "Loss/actor" not in metrics
    with pytest.raises(UnknownMetricError, match="Train/mean_reward"):
        metrics.series("Train/mean_rewards")


def test_wanted_tags_alone(tmp_path: Path) -> None:
    values = {"Train/mean_reward": 1.0, "Perf/total_fps": 5.0, "Perf/learning_time": 1.0}
    make_run(tmp_path, [report(1, values)], summary=STAMPED)
    metrics = RunFolder.open(tmp_path).metrics(["Perf/*"])
    assert metrics.tags == ("Perf/learning_time", "Perf/total_fps")


def test_a_run_that_has_just_begun_is_empty(tmp_path: Path) -> None:
    make_run(tmp_path, [], summary=STAMPED)
    assert RunFolder.open(tmp_path).metrics().tags == ()
    event_path(tmp_path).unlink()
    assert RunFolder.open(tmp_path).metrics().tags == ()


def test_damage_is_told(tmp_path: Path) -> None:
    make_run(tmp_path, [report(1, {"Loss/actor": 1.0}), report(2, {})], summary=STAMPED)
    path = event_path(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    metrics = RunFolder.open(tmp_path).metrics()
    assert metrics.series("Loss/actor").steps.tolist() == [1]
    assert "unfinished" in metrics.damage[0]


def test_what_is_no_run_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is not there"):
        RunFolder.open(tmp_path / "absent")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(RunFolderError, match="is a file"):
        RunFolder.open(file)
    with pytest.raises(RunFolderError, match="holds no run: neither"):
        RunFolder.open(tmp_path)
    make_run(tmp_path / "below" / "run", [], summary=STAMPED)
    with pytest.raises(RunFolderError, match=r"below it are 1: .*below/run: name one"):
        RunFolder.open(tmp_path)


def test_summary_and_config_are_read_when_asked_for(tmp_path: Path) -> None:
    make_run(tmp_path, [], summary={"metric_schema_version": 1})
    folder = RunFolder.open(tmp_path)
    with pytest.raises(SchemaError, match=r"run_summary\.json: not a RunSummary: status"):
        _ = folder.summary
    assert folder.config is None
    (tmp_path / "run_config.json").write_text("{")
    assert folder.config is None
    with pytest.raises(SchemaError, match=r"run_config\.json: not whole JSON"):
        _ = RunFolder.open(tmp_path).config
    (tmp_path / "run_summary.json").unlink()
    assert RunFolder.open(tmp_path).summary is None


def test_traces_lie_where_the_summary_says(tmp_path: Path) -> None:
    make_run(tmp_path, [], summary=STAMPED)
    assert RunFolder.open(tmp_path).traces is None
    (tmp_path / "traces").mkdir()
    assert RunFolder.open(tmp_path).traces == tmp_path / "traces"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    make_run(tmp_path, summary=STAMPED | {"trace_path": str(elsewhere)})
    assert RunFolder.open(tmp_path).traces == elsewhere


def test_reading_a_run_imports_neither_torch_nor_a_simulator(tmp_path: Path) -> None:
    make_run(tmp_path, [report(1, {"Loss/actor": 1.0})], summary=STAMPED)
    code = (
        "import sys, pathlib; from drivetrain_trainer.analysis.runs import RunFolder;"
        f"RunFolder.open(pathlib.Path({str(tmp_path)!r})).metrics();"
        "print(sorted({'torch', 'mujoco', 'matplotlib', 'pyarrow', 'wandb'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
