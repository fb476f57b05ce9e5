"""Settings, versions and times beside the scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.compared_runs import flat, write_seeds, write_timings

from drivetrain_trainer.analysis.comparison.circumstances import (
    TRAINING_LOOP,
    Circumstances,
    StageTime,
    look,
)
from drivetrain_trainer.analysis.comparison.inputs import find
from drivetrain_trainer.analysis.comparison.reading import read_runs

HOST = "a CPU, 4 CPUs, learner on cpu"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def seeds(folder: str, count: int = 2, task: str = "hopper", **made: Any) -> Path:
    return write_seeds(Path(folder), lambda _: flat(1.0, reports=5, **made), range(count), task)


def member(index: int) -> dict[str, Any]:
    return {"experiment": {"suite": "s", "run_idx": index, "invocation": "i"}}


def looked(*paths: str) -> Circumstances:
    return look(read_runs(find(paths), print))


def test_settings_that_differ_without_those_that_always_do() -> None:
    seeds("a", spec={"algo": {"batch_size": 64}})
    seeds("b", spec={"algo": {"batch_size": 128}})
    seeds("c/1", spec={"algo": {"batch_size": 64}})
    write_seeds(
        Path("c/2"),
        lambda _: flat(1.0, reports=5, spec={"algo": {"batch_size": 32}}),
        [7],
        "hopper",
    )
    found = looked("a", "b", "c")
    assert [(one.name, one.values) for one in found.settings] == [
        ("algo.batch_size", ("64", "128", "32, 64"))
    ]
    assert looked("a").settings == ()


def test_defaults_of_tasks_are_no_difference() -> None:
    for side in "ab":
        seeds(f"{side}/hopper")
        seeds(f"{side}/ant", task="ant")
    assert looked("a", "b").settings == ()


def test_versions_that_differ_and_those_that_all_share() -> None:
    seeds("a")
    for path in seeds("b").glob("*/run_config.json"):
        content = json.loads(path.read_text())
        content["run"]["versions"] = {"python": "3.11", "torch": "2.13"}
        path.write_text(json.dumps(content))
    found = looked("a", "b")
    assert [(one.name, one.values) for one in found.versions] == [
        ("torch", ("not recorded", "2.13"))
    ]
    assert found.common_versions == {"python": "3.11"}


def test_times_by_hardware_from_the_artifact_directory() -> None:
    for side, cpu in (("a", "EPYC"), ("b", "Xeon")):
        write_seeds(
            Path(side), lambda seed: flat(1.0, reports=5, spec=member(seed)), range(2), "hopper"
        )
        write_timings(Path(side), {"sac_train": [10.0, 30.0, 99.0]}, cpu=cpu, gpu="H200")
    found = looked("a", "b")
    words = "16 threads on 8 cores; 64 GiB of memory (cgroup v2 limit); H200"
    assert found.times == (
        StageTime("a", "sac_train", f"EPYC, {words}", 2, 20.0, 40.0),
        StageTime("b", "sac_train", f"Xeon, {words}", 2, 20.0, 40.0),
    )
    assert found.notes == (
        "The runs were not all trained on the same hardware: compare their times with care.",
    )


def test_a_stage_that_is_measured_once_for_all_runs_counts_once() -> None:
    write_seeds(Path("a"), lambda seed: flat(1.0, reports=5, spec=member(seed)), range(3), "hopper")
    Path("a/timings.json").write_text(
        json.dumps({"alpharank": {"total_seconds": 7.0, "runs": [{"seconds": 7.0}]}})
    )
    (found,) = looked("a").times
    assert found == StageTime("a", "alpharank", "not recorded", 1, 7.0, 7.0)


def test_a_run_of_its_own_has_its_timings_in_it() -> None:
    path = flat(1.0, reports=5).write(Path("run"), 0)
    write_timings(path, {"sac_train": [12.0]}, cpu="EPYC")
    (found,) = looked("run").times
    assert (found.stage, found.runs, found.total_seconds) == ("sac_train", 1, 12.0)


def test_without_timings_the_summary_tells_the_loop() -> None:
    seeds("a", summary={"training_wall_time_sec": 8.0})
    found = looked("a")
    assert found.times == (StageTime("a", TRAINING_LOOP, HOST, 2, 8.0, 16.0),)
    assert found.notes == ()


def test_torn_timings_are_told_of_and_nothing_stops() -> None:
    seeds("a", spec=member(0))
    Path("a/timings.json").write_text('{"sac_train": ')
    found = looked("a")
    assert found.times == ()
    (note,) = found.notes
    assert note.startswith("Timings are not shown: a/timings.json: ")


def test_legacy_hardware_is_labelled() -> None:
    write_seeds(Path("a"), lambda seed: flat(1.0, reports=5, spec=member(seed)), [0], "hopper")
    legacy = {"seconds": 5.0, "run_idx": 0, "system_ram_gb": 64.0}
    Path("a/timings.json").write_text(
        json.dumps({"sac_train": {"total_seconds": 5.0, "runs": [legacy]}})
    )
    (found,) = looked("a").times
    assert found.hardware == "not recorded (legacy)"
