"""drivetrain timings report: figures, hardware, legacy files, refusals, and the picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from tests.support.compared_runs import flat, write_suite

from drivetrain_api.timings.hardware import (
    ClockRange,
    ClockSource,
    CpuFacts,
    GpuFacts,
    HardwareRecord,
    MemoryFacts,
    MemorySource,
    Scheduler,
    SchedulerJob,
)
from drivetrain_api.timings.model import StageRun
from drivetrain_api.timings.store import TimingsDirectory
from drivetrain_trainer.analysis.stage_timings.words import of_record
from drivetrain_trainer.cli.timings import timings
from drivetrain_trainer.hardware.record import read_hardware

BIG = HardwareRecord(
    cpu=CpuFacts(
        guest_visible_name="Some CPU",
        logical_threads=16,
        physical_cores=8,
        clock=ClockRange(min_mhz=1500, max_mhz=4400, source=ClockSource.CPUFREQ),
    ),
    memory=MemoryFacts(limit_bytes=32 << 30, source=MemorySource.CGROUP_V2),
    gpus=(
        GpuFacts(model="Card", usable_vram_bytes=80 << 30, peak_memory_bandwidth_gb_s=3352.3),
        GpuFacts(model="Card", usable_vram_bytes=80 << 30, peak_memory_bandwidth_gb_s=3352.3),
    ),
    jobs=(SchedulerJob(scheduler=Scheduler.SLURM, variables={"SLURM_JOB_ID": "4711"}),),
)
SMALL = HardwareRecord(cpu=CpuFacts(logical_threads=1))
LEGACY = {
    "sac_train": {
        "total_seconds": 90.0,
        "runs": [
            {"seconds": 30.0, "run_idx": 0, "system_ram_gb": 62.8, "gpu_ram_gb": 23.6},
            {"seconds": 60.0, "run_idx": 1, "system_ram_gb": 62.8, "gpu_ram_gb": 23.6},
        ],
    }
}


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(timings, ["report", *map(str, arguments)])


def rows(result: Result) -> list[list[str]]:
    """Cells of all lines; columns are at least two blanks apart."""
    assert result.exit_code == 0, result.output
    return [
        [cell.strip() for cell in line.split("  ") if cell.strip()]
        for line in result.stdout.splitlines()
        if line.strip()
    ]


@pytest.fixture
def sac(tmp_path: Path) -> Path:
    directory = TimingsDirectory(tmp_path / "sac/ant")
    for index, (seconds, hardware) in enumerate(((600.0, BIG), (1800.0, SMALL))):
        directory.record("sac_train", StageRun(seconds=seconds, run_idx=index), hardware)
        directory.record("checkpoint_save", StageRun(seconds=0.25, run_idx=index), hardware)
    return directory.path


@pytest.fixture
def appo(tmp_path: Path) -> Path:
    directory = TimingsDirectory(tmp_path / "appo/ant")
    directory.record("appo_train", StageRun(seconds=7.5, run_idx=0), BIG)
    return directory.path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old/ant"
    path.mkdir(parents=True)
    (path / "timings.json").write_text(json.dumps(LEGACY))
    return path


def test_a_table_of_stages_and_what_their_hardware_is(sac: Path) -> None:
    both = f"{BIG.hardware_id}, {SMALL.hardware_id}"
    assert rows(call(sac)) == [
        [str(sac)],
        ["STAGE", "RUNS", "TOTAL", "MEAN", "LEAST", "GREATEST", "HARDWARE"],
        ["sac_train", "2", "40 min", "20 min", "10 min", "30 min", both],
        ["checkpoint_save", "2", "500 ms", "250 ms", "250 ms", "250 ms", both],
        ["Hardware"],
        [BIG.hardware_id, of_record(BIG)],
        [SMALL.hardware_id, "1 thread"],
    ]


def test_hardware_in_words_tells_what_is_known_alone() -> None:
    assert of_record(BIG) == (
        "Some CPU, 16 threads on 8 cores, 1500 to 4400 MHz; 32 GiB of memory (cgroup v2 limit); "
        "2 x Card (80 GiB, peak 3352 GB/s); Slurm job 4711"
    )
    assert of_record(
        HardwareRecord(
            cpu=CpuFacts(
                logical_threads=2,
                physical_cores=1,
                clock=ClockRange(min_mhz=2500, max_mhz=2500, source=ClockSource.KVM_TSC),
            ),
            memory=MemoryFacts(limit_bytes=3 << 29, source=MemorySource.SLURM),
            gpus=(GpuFacts(),),
            jobs=(SchedulerJob(scheduler=Scheduler.PBS, variables={}),),
        )
    ) == (
        "2 threads on 1 core, 2500 MHz (the guest's view); 1.5 GiB of memory (Slurm allocation); "
        "a GPU that tells nothing; PBS job"
    )
    clock = ClockRange(max_mhz=3420, source=ClockSource.CPPC)
    assert of_record(HardwareRecord(cpu=CpuFacts(logical_threads=1, clock=clock))) == (
        "1 thread, up to 3420 MHz"
    )


def test_by_hardware_sums_over_directories(sac: Path, appo: Path) -> None:
    assert rows(call(sac, appo, "--by-hardware")) == [
        [f"{BIG.hardware_id}: {of_record(BIG)}"],
        ["STAGE", "RUNS", "TOTAL", "MEAN", "LEAST", "GREATEST", "DIRECTORIES"],
        ["sac_train", "1", "10 min", "10 min", "10 min", "10 min", str(sac)],
        ["checkpoint_save", "1", "250 ms", "250 ms", "250 ms", "250 ms", str(sac)],
        ["appo_train", "1", "7.5 s", "7.5 s", "7.5 s", "7.5 s", str(appo)],
        [f"{SMALL.hardware_id}: 1 thread"],
        ["STAGE", "RUNS", "TOTAL", "MEAN", "LEAST", "GREATEST", "DIRECTORIES"],
        ["sac_train", "1", "30 min", "30 min", "30 min", "30 min", str(sac)],
        ["checkpoint_save", "1", "250 ms", "250 ms", "250 ms", "250 ms", str(sac)],
    ]


def test_legacy_sizes_are_labelled_and_never_this_machines(old: Path) -> None:
    told = rows(call(old))
    assert told[2][-1] == "legacy 62.8/23.6"
    assert told[-1] == [
        "legacy 62.8/23.6",
        (
            "legacy metadata of a historical file: 62.8 GB of system memory, "
            "23.6 GB of GPU memory; of the machine of then, not of this one"
        ),
    ]
    content = json.loads(call(old, "--json", "--by-hardware").stdout)
    reference = {"kind": "legacy", "system_ram_gb": 62.8, "gpu_ram_gb": 23.6}
    (run, _) = content["directories"][0]["stages"]["sac_train"]["runs"]
    assert run["hardware"] == reference
    assert "system_ram_gb" not in run
    assert content["hardware"] == {}
    assert [one["hardware"] for one in content["by_hardware"]] == [reference]
    assert read_hardware().hardware_id not in call(old).stdout
    assert json.loads((old / "timings.json").read_text()) == LEGACY
    assert not (old / "timings_hardware.json").exists()


def test_legacy_and_new_runs_of_a_stage_stay_apart(old: Path) -> None:
    TimingsDirectory(old).record("sac_train", StageRun(seconds=9.0, run_idx=2), SMALL)
    told = rows(call(old))
    assert told[2][1:3] == ["3", "1 min 39 s"]
    assert told[2][-1] == f"legacy 62.8/23.6, {SMALL.hardware_id}"


def test_a_run_whose_hardware_nobody_describes(tmp_path: Path) -> None:
    runs = [{"seconds": 1.0, "run_idx": 0, "hardware_id": "hw-lost"}, {"seconds": 1, "run_idx": 1}]
    content = {"x": {"total_seconds": 2.0, "runs": runs}}
    (tmp_path / "timings.json").write_text(json.dumps(content))
    assert rows(call(tmp_path))[-2:] == [
        ["hw-lost", "not described in timings_hardware.json"],
        ["unknown", "the record names no hardware"],
    ]


def test_json_holds_everything(sac: Path) -> None:
    content = json.loads(call(sac, "--json").stdout)
    assert set(content) == {"directories", "hardware"}
    assert set(content["hardware"]) == {BIG.hardware_id, SMALL.hardware_id}
    stage = content["directories"][0]["stages"]["sac_train"]
    assert stage["total_seconds"] == 2400.0
    assert stage["runs"][0] == {
        "seconds": 600.0,
        "run_idx": 0,
        "directory": str(sac),
        "hardware": {"kind": "described", "id": BIG.hardware_id},
    }


def test_a_directory_given_twice_counts_once(sac: Path) -> None:
    assert rows(call(sac, sac)) == rows(call(sac))


def test_only_the_directory_itself_is_read_and_others_are_named(sac: Path, appo: Path) -> None:
    for neighbour in (sac.parent, sac / "run_0_seed_1", sac.parent.parent):
        neighbour.mkdir(exist_ok=True)
        result = call(neighbour)
        assert result.exit_code == 2
        assert f"{neighbour}: no timings.json in this directory" in result.stderr
    assert f"there are timings in {appo}, {sac}" in call(sac.parent.parent).stderr


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Of three variants the first two have begun; one more folder is no member's."""
    made = {f"v{number}": lambda _: flat(1.0, reports=5) for number in range(3)}
    root = tmp_path / "s"
    root.mkdir()
    write_suite(root, made, [0, 1], task="ant")
    for number, folder in enumerate(("v1/sac/ant", "v0/sac/ant", "gone/sac/ant")):
        run = StageRun(seconds=10.0 + number, run_idx=0)
        TimingsDirectory(root / folder).record("sac_train", run, SMALL)
    return root


def test_a_suites_root_stands_for_the_artifact_directories_that_its_record_names(
    suite: Path, appo: Path
) -> None:
    one, two = suite / "v0/sac/ant", suite / "v1/sac/ant"
    assert rows(call(suite)) == rows(call(one, two))
    content = json.loads(call(appo, suite, two, "--json").stdout)
    assert [found["directory"] for found in content["directories"]] == [
        str(path) for path in (appo, one, two)
    ]


def test_a_suite_without_timings_or_with_a_torn_record_is_refused(suite: Path) -> None:
    for folder in ("v0", "v1"):
        (suite / folder / "sac/ant/timings.json").unlink()
    result = call(suite)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{suite}: no timings.json yet in an artifact directory of suite s: " in result.stderr
    assert f"{suite / 'v0/sac/ant'}, {suite / 'v1/sac/ant'}" in result.stderr
    record = suite / "suite.json"
    record.write_text(record.read_text()[:40])
    result = call(suite)
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(record) in result.stderr


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("timings.json", '{"sac_train"', "torn"),
        ("timings.json", '{"a": 1}', "not a Timings"),
        ("timings_hardware.json", '{"schema_version": 2, "hardware": {}}', "newer than 1"),
    ],
)
def test_a_file_that_is_refused_exits_with_2_and_its_reason(
    sac: Path, name: str, content: str, reason: str
) -> None:
    (sac / name).write_text(content)
    result = call(sac)
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(sac / name) in result.stderr
    assert reason in result.stderr
    assert (sac / name).read_text() == content


def test_nothing_recorded_yet(tmp_path: Path) -> None:
    (tmp_path / "timings.json").write_text("{}")
    for option in ((), ("--by-hardware",)):
        assert call(tmp_path, *option).stdout == "no stage has been recorded yet\n"
    result = call(tmp_path, "--plot", tmp_path / "x.svg")
    assert result.exit_code == 2
    assert "nothing to draw" in result.stderr


def texts(path: Path) -> str:
    return " ".join(" ".join(ET.parse(path).getroot().itertext()).split())


@pytest.mark.parametrize("option", [(), ("--by-hardware",)])
def test_the_figure_names_stages_means_and_what_colours_mean(
    sac: Path, appo: Path, tmp_path: Path, option: tuple[Any, ...]
) -> None:
    figure = tmp_path / "stages.svg"
    result = call(sac, appo, "--plot", figure, *option)
    assert result.exit_code == 0, result.output
    assert f"{figure}: 5 runs" in result.stderr
    shown = texts(figure)
    named = [BIG.hardware_id, SMALL.hardware_id] if option else [str(sac), str(appo)]
    for words in ("sac_train", "appo_train", "checkpoint_save", "1 min", *named):
        assert words in shown
    assert ("20 min, 2 runs" in shown) is not bool(option)


def test_a_narrow_range_is_drawn_from_zero(appo: Path, tmp_path: Path) -> None:
    figure = tmp_path / "stages.svg"
    assert call(appo, "--plot", figure).exit_code == 0
    assert "7.5 s" in texts(figure)
    assert " 0 " in texts(figure)


def test_a_figure_that_cannot_be_is_refused_before_reading(sac: Path, tmp_path: Path) -> None:
    result = call(sac / "absent", "--plot", tmp_path / "stages.gif")
    assert result.exit_code == 2
    assert "the name must end with .png, .svg, .pdf" in result.stderr
    many = TimingsDirectory(tmp_path / "many")
    stage = {"total_seconds": 1.0, "runs": [{"seconds": 1.0}]}
    many.path.mkdir()
    many.timings_path.write_text(json.dumps({f"stage_{number}": stage for number in range(81)}))
    result = call(many.path, "--plot", tmp_path / "stages.png")
    assert result.exit_code == 2
    assert "81 rows; a figure holds 80" in result.stderr
    assert not (tmp_path / "stages.png").exists()
