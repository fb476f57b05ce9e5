"""CPUs by affinity, their cores, their clock by each rule, and the guest's name for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest
from tests.support.machine_files import cppc, cpufreq, cpuinfo, cpuinfo_entry, write_files

from drivetrain_api.timings.hardware import ClockRange, ClockSource, CpuFacts
from drivetrain_trainer.hardware.record import read_hardware

TOPOLOGY = "sys/devices/system/cpu/cpu{}/topology/{}"


def cpu_of(root: Path, files: Mapping[str, str], affinity: AbstractSet[int]) -> CpuFacts:
    write_files(root, files)
    return read_hardware(root, environment={}, affinity=affinity, library="libno-driver.so").cpu


def siblings(name: str, *cores: str) -> dict[str, str]:
    """A kernel list for each CPU, in order."""
    return {TOPOLOGY.format(cpu, name): f"{threads}\n" for cpu, threads in enumerate(cores)}


EIGHT_THREADS = siblings("core_cpus_list", *(["0,4", "1,5", "2,6", "3,7"] * 2))


@pytest.mark.parametrize(
    ("affinity", "cores"),
    [
        ({0, 1, 2, 3, 4, 5, 6, 7}, 4),
        ({0, 4}, 1),
        ({0, 1}, 2),
        ({1, 5, 6}, 2),
        ({7}, 1),
    ],
)
def test_the_mask_counts_and_threads_of_a_core_are_one_core(
    tmp_path: Path, affinity: set[int], cores: int
) -> None:
    found = cpu_of(tmp_path, EIGHT_THREADS, affinity)
    assert (found.logical_threads, found.physical_cores) == (len(affinity), cores)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        pytest.param(
            siblings("thread_siblings_list", "0-1", "0-1", "2-3", "2-3"), 2, id="old name"
        ),
        pytest.param(
            {
                TOPOLOGY.format(cpu, name): f"{value}\n"
                for cpu in range(4)
                for name, value in (("physical_package_id", cpu // 2), ("core_id", 0))
            },
            2,
            id="equal core ids in two packages",
        ),
        pytest.param({"proc/cpuinfo": cpuinfo(2500, 2500, 2500, 2500)}, 2, id="cpuinfo alone"),
        pytest.param({}, None, id="not told"),
        pytest.param(siblings("core_cpus_list", "0-1", "0-1", "2"), None, id="one is not told"),
        pytest.param(
            siblings("core_cpus_list", "0-1", "0-1", "2", "what"), None, id="one is not a list"
        ),
    ],
)
def test_the_topology_is_read_from_where_it_is_told(
    tmp_path: Path, files: Mapping[str, str], cores: int | None
) -> None:
    found = cpu_of(tmp_path, files, {0, 1, 2, 3})
    assert (found.logical_threads, found.physical_cores) == (4, cores)


def test_the_name_is_that_which_the_guest_shows(tmp_path: Path) -> None:
    found = cpu_of(tmp_path, {"proc/cpuinfo": cpuinfo(2500)}, {0})
    assert found.guest_visible_name == "Guest CPU @ 2.50GHz"
    assert "guest_visible_name" in found.model_dump(mode="json", exclude_none=True)


def test_without_a_name_there_is_none(tmp_path: Path) -> None:
    entry = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n"
    assert cpu_of(tmp_path, {"proc/cpuinfo": entry}, {0}).guest_visible_name is None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {**cpufreq(0, 800_000, 3_500_000), **cpufreq(1, 1_200_000, 3_700_000)},
            ClockRange(min_mhz=800, max_mhz=3700, source=ClockSource.CPUFREQ),
            id="the range over all of them",
        ),
        pytest.param(
            {**cpufreq(0, 800_000, 3_500_000), **cpufreq(2, 400_000, 5_000_000)},
            ClockRange(min_mhz=800, max_mhz=3500, source=ClockSource.CPUFREQ),
            id="a CPU outside of the mask does not count",
        ),
        pytest.param(
            # 2000 MHz * 166 / 100
            {**cpufreq(0, 400_000, 3_000_000), **cppc(0, 2000, 166, 100)},
            ClockRange(min_mhz=400, max_mhz=3320, source=ClockSource.CPUFREQ_CPPC),
            id="CPPC extends the maximum",
        ),
        pytest.param(
            # 2000 MHz * 140 / 100
            {**cpufreq(0, 400_000, 3_000_000), **cppc(0, 2000, 140, 100)},
            ClockRange(min_mhz=400, max_mhz=3000, source=ClockSource.CPUFREQ),
            id="CPPC never lowers it",
        ),
        pytest.param(
            {**cpufreq(0, 400_000, 3_000_000), **cppc(0, 2000, 166, 0)},
            ClockRange(min_mhz=400, max_mhz=3000, source=ClockSource.CPUFREQ),
            id="CPPC without a nominal performance",
        ),
        pytest.param(
            {**cpufreq(0, 400_000, 3_000_000), **cppc(0, 0, 166, 100)},
            ClockRange(min_mhz=400, max_mhz=3000, source=ClockSource.CPUFREQ),
            id="CPPC without a nominal frequency",
        ),
        pytest.param(
            cppc(0, 2250, 228, 150),  # 2250 MHz * 228 / 150
            ClockRange(max_mhz=3420, source=ClockSource.CPPC),
            id="CPPC alone tells no minimum",
        ),
        pytest.param(
            {**cpufreq(0, 800_000, 3_500_000), "proc/cpuinfo": cpuinfo(2500, 2500)},
            ClockRange(min_mhz=800, max_mhz=3500, source=ClockSource.CPUFREQ),
            id="an interface goes before cpuinfo",
        ),
        pytest.param(
            {"sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "<unknown>\n"},
            None,
            id="no number",
        ),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_the_clock_comes_from_cpufreq_and_cppc_may_extend_it(
    tmp_path: Path, files: Mapping[str, str], expected: ClockRange | None
) -> None:
    assert cpu_of(tmp_path, files, {0, 1}).clock == expected


def fixed(megahertz: float) -> ClockRange:
    return ClockRange(min_mhz=megahertz, max_mhz=megahertz, source=ClockSource.KVM_TSC)


@pytest.mark.parametrize(
    ("content", "affinity", "expected"),
    [
        pytest.param(cpuinfo(2500, 2500), {0, 1}, fixed(2500), id="all say the same"),
        pytest.param(cpuinfo(2499.95, 2500.05), {0, 1}, fixed(2500), id="0.1 MHz apart"),
        pytest.param(cpuinfo(2499.949, 2500.05), {0, 1}, None, id="more than 0.1 MHz apart"),
        pytest.param(cpuinfo(2500, 2500, 2600), {0, 1}, None, id="one we may not run on disagrees"),
        pytest.param(cpuinfo(2500, 2500), {0, 2}, None, id="one of ours is not shown"),
        pytest.param(cpuinfo(2500, None), {0, 1}, None, id="one has no reading"),
        pytest.param(
            cpuinfo(2500, 2500, flags="fpu tsc_known_freq"), {0, 1}, None, id="no hypervisor"
        ),
        pytest.param(
            cpuinfo(2500, 2500, flags="fpu hypervisor"), {0, 1}, None, id="frequency not known"
        ),
        pytest.param(
            cpuinfo_entry(0, 2500, flags="hypervisor tsc_known_freq")
            + "\n"
            + cpuinfo_entry(1, 2500, flags="hypervisor"),
            {0},
            None,
            id="not on every one",
        ),
        pytest.param(
            cpuinfo(2500, 2500, flags="hypervisor not_tsc_known_freq"), {0}, None, id="whole flags"
        ),
        pytest.param("", {0}, None, id="an empty file"),
    ],
)
def test_a_guests_fixed_clock_counts_only_where_every_cpu_agrees(
    tmp_path: Path, content: str, affinity: set[int], expected: ClockRange | None
) -> None:
    assert cpu_of(tmp_path, {"proc/cpuinfo": content}, affinity).clock == expected


def test_here(tmp_path: Path) -> None:

    found = read_hardware().cpu
    assert found.logical_threads == len(os.sched_getaffinity(0))
    assert found.physical_cores is None or found.physical_cores <= found.logical_threads
    assert cpu_of(tmp_path, {}, os.sched_getaffinity(0)).logical_threads == found.logical_threads
