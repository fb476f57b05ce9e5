"""The whole description: batch jobs' metadata, and an id that is the same wherever it is made."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.machine_files import V2_MOUNT, cpuinfo, v2_limits, write_files
from tests.support.nvml import StandInDevice, StandInNvml

from drivetrain_api.timings.hardware import HardwareRecord, Scheduler
from drivetrain_trainer.hardware.record import read_hardware

GIB = 1 << 30
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NAME": "ant",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_CPUS_ON_NODE": "8",
}
PBS = {"PBS_JOBID": "99.head", "PBS_QUEUE": "short", "NCPUS": "4"}


def record(root: Path, environment: dict[str, str] | None = None) -> HardwareRecord:
    write_files(
        root,
        {
            "proc/cpuinfo": cpuinfo(2500, 2500),
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": V2_MOUNT,
            **v2_limits("sys/fs/cgroup", {"": 4 * GIB}),
        },
    )
    return read_hardware(root, environment=environment or {}, affinity={0, 1})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {}),
        (SLURM, {Scheduler.SLURM: SLURM}),
        (PBS, {Scheduler.PBS: PBS}),
        (SLURM | PBS, {Scheduler.SLURM: SLURM, Scheduler.PBS: PBS}),
        ({"NCPUS": "4"}, {}),
        ({"SLURM_JOB_ID": "1", "SLURM_JWT": "secret"}, {Scheduler.SLURM: {"SLURM_JOB_ID": "1"}}),
        (
            {"SLURM_JOB_NODELIST": "n" * 400},
            {Scheduler.SLURM: {"SLURM_JOB_NODELIST": "n" * 253}},
        ),
    ],
)
def test_metadata_of_slurm_and_pbs_is_kept_and_no_secret_of_theirs(
    tmp_path: Path, environment: dict[str, str], expected: dict[Scheduler, dict[str, str]]
) -> None:
    jobs = record(tmp_path, environment).jobs
    assert {job.scheduler: job.variables for job in jobs} == expected


def test_the_description_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = StandInDevice(
        name="Tesla T4", total=100, reserved=10, bus_width=256, memory_clock=5001
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda _: StandInNvml([device]))
    found = record(tmp_path, {"PBS_JOBID": "1"})
    assert json.loads(found.model_dump_json(exclude_none=True)) == {
        "cpu": {
            "guest_visible_name": "Guest CPU @ 2.50GHz",
            "logical_threads": 2,
            "physical_cores": 1,
            "clock": {"min_mhz": 2500.0, "max_mhz": 2500.0, "source": "kvm_tsc"},
        },
        "memory": {"limit_bytes": 4 * GIB, "source": "cgroup_v2"},
        "gpus": [
            {
                "model": "Tesla T4",
                "usable_vram_bytes": 90,
                "memory_bus_width_bits": 256,
                "max_memory_clock_mhz": 5001,
                "peak_memory_bandwidth_gb_s": 320.1,
            }
        ],
        "jobs": [{"scheduler": "pbs", "variables": {"PBS_JOBID": "1"}}],
    }


def test_an_empty_machine_is_a_description_too(tmp_path: Path) -> None:
    found = read_hardware(tmp_path, environment={}, affinity={0, 5}, library="libno-driver.so")
    assert json.loads(found.model_dump_json(exclude_none=True)) == {
        "cpu": {"logical_threads": 2},
        "gpus": [],
        "jobs": [],
    }


def test_garbage_in_the_machines_files_is_no_fact(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_bytes(b"processor : 0\ncpu MHz : nan\n\xff\xfe: \x00\n\n:\n")
    (tmp_path / "sys/devices/system/cpu/cpu0/topology/core_cpus_list").mkdir(parents=True)
    found = read_hardware(tmp_path, environment={}, affinity={0}, library="libno-driver.so")
    assert found.cpu.clock is None
    assert found.cpu.physical_cores is None


def test_equal_machines_have_one_id_in_every_process_and_others_another(tmp_path: Path) -> None:
    here = record(tmp_path / "a")
    assert record(tmp_path / "b").hardware_id == here.hardware_id
    assert record(tmp_path / "c", {"PBS_JOBID": "1"}).hardware_id != here.hardware_id
    code = (
        "import pathlib, sys; from drivetrain_trainer.hardware.record import read_hardware\n"
        "print(read_hardware(pathlib.Path(sys.argv[1]), environment={}, affinity={1, 0}"
        ").hardware_id)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == here.hardware_id


def test_the_id_does_not_depend_on_the_order_of_keys() -> None:
    content = {"cpu": {"logical_threads": 2, "physical_cores": 1}, "gpus": [], "jobs": []}
    turned = {"jobs": [], "gpus": [], "cpu": {"physical_cores": 1, "logical_threads": 2}}
    ids = {HardwareRecord.model_validate(given).hardware_id for given in (content, turned)}
    # sha256 of {"cpu":{"logical_threads":2,"physical_cores":1},"gpus":[],"jobs":[]}
    assert ids == {"hw-200d4d3638ccb083"}
