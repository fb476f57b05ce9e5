"""Memory of a timed process: the smallest finite cgroup limit, else Slurm's, else none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.machine_files import (
    HYBRID_MOUNTS,
    V1_MOUNT,
    V1_UNLIMITED,
    V2_MOUNT,
    v1_limits,
    v2_limits,
    write_files,
)

from drivetrain_api.timings.hardware import MemoryFacts, MemorySource
from drivetrain_trainer.hardware.batch_job import slurm_memory
from drivetrain_trainer.hardware.record import read_hardware

GIB = 1 << 30
MIB = 1 << 20
MACHINE = {"proc/meminfo": "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n"}
JOB = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "2048"}
V2 = {"proc/self/mountinfo": V2_MOUNT}
V1 = {"proc/self/mountinfo": V1_MOUNT}
CGROUP = "sys/fs/cgroup"


def memory_of(
    root: Path, files: Mapping[str, str], environment: Mapping[str, str] = JOB
) -> MemoryFacts | None:
    write_files(root, {**MACHINE, **files})
    return read_hardware(
        root, environment=environment, affinity={0}, library="libno-driver.so"
    ).memory


@pytest.mark.parametrize(
    ("files", "limit", "source"),
    [
        pytest.param(
            {**V2, "proc/self/cgroup": "0::/\n", **v2_limits(CGROUP, {"": 4 * GIB})},
            4 * GIB,
            MemorySource.CGROUP_V2,
            id="v2: the container's own",
        ),
        pytest.param(
            {
                **V2,
                "proc/self/cgroup": "0::/slice/pod/container\n",
                **v2_limits(
                    CGROUP,
                    {"slice/pod/container": "max", "slice/pod": 3 * GIB, "slice": 5 * GIB},
                ),
            },
            3 * GIB,
            MemorySource.CGROUP_V2,
            id="v2: max below a finite limit",
        ),
        pytest.param(
            {
                **V2,
                "proc/self/cgroup": "0::/slice/pod\n",
                **v2_limits(CGROUP, {"slice/pod": 6 * GIB, "slice": 5 * GIB}),
            },
            5 * GIB,
            MemorySource.CGROUP_V2,
            id="v2: the outer one is smaller",
        ),
        pytest.param(
            {
                **V2,
                "proc/self/cgroup": "0::/pod/session/leaf\n",
                f"{CGROUP}/pod/session/leaf/cgroup.procs": "1\n",
                **v2_limits(CGROUP, {"pod": GIB}),
            },
            GIB,
            MemorySource.CGROUP_V2,
            id="v2: the controller ends above our cgroup",
        ),
        pytest.param(
            {
                **V2,
                "proc/self/cgroup": "0::/../other\n",
                **v2_limits(CGROUP, {"": 2 * GIB}),
            },
            2 * GIB,
            MemorySource.CGROUP_V2,
            id="v2: outside of the namespace's root",
        ),
        pytest.param(
            {
                **V1,
                "proc/self/cgroup": "4:memory:/batch/job\n0::/\n",
                **v1_limits({"batch/job": 3 * GIB, "batch": 2 * GIB, "": V1_UNLIMITED}),
            },
            2 * GIB,
            MemorySource.CGROUP_V1,
            id="v1: nested",
        ),
        pytest.param(
            {
                **V1,
                "proc/self/cgroup": "4:memory:/docker/abc\n",
                **v1_limits({"": V1_UNLIMITED}),
                f"{CGROUP}/memory/memory.stat": f"cache 1\nhierarchical_memory_limit {GIB}\n",
            },
            GIB,
            MemorySource.CGROUP_V1,
            id="v1: a limit above the container's mount",
        ),
        pytest.param(
            {
                "proc/self/mountinfo": HYBRID_MOUNTS,
                "proc/self/cgroup": "4:memory:/job\n0::/job\n",
                **v1_limits({"job": 3 * GIB}),
                **v2_limits(f"{CGROUP}/unified", {"job": 2 * GIB}),
            },
            2 * GIB,
            MemorySource.CGROUP_V2,
            id="both versions: the smaller",
        ),
        pytest.param(
            {**V2, "proc/self/cgroup": "0::/\n", **v2_limits(CGROUP, {"": 64 * GIB})},
            64 * GIB,
            MemorySource.CGROUP_V2,
            id="a finite limit beyond the machine is a limit still",
        ),
    ],
)
def test_the_smallest_finite_cgroup_limit_counts_and_slurm_does_not(
    tmp_path: Path, files: Mapping[str, str], limit: int, source: MemorySource
) -> None:
    assert memory_of(tmp_path, files) == MemoryFacts(limit_bytes=limit, source=source)


UNLIMITED = [
    pytest.param({}, id="no cgroup at all"),
    pytest.param(
        {
            **V2,
            "proc/self/cgroup": "0::/pod\n",
            **v2_limits(CGROUP, {"pod": "max"}),
        },
        id="v2 says max",
    ),
    pytest.param(
        {
            **V1,
            "proc/self/cgroup": "4:memory:/job\n",
            **v1_limits({"job": V1_UNLIMITED, "": V1_UNLIMITED}),
            f"{CGROUP}/memory/job/memory.stat": f"hierarchical_memory_limit {V1_UNLIMITED}\n",
        },
        id="v1 says its greatest number",
    ),
]


@pytest.mark.parametrize("files", UNLIMITED)
def test_without_a_finite_limit_slurms_allocation_counts(
    tmp_path: Path, files: Mapping[str, str]
) -> None:
    assert memory_of(tmp_path, files) == MemoryFacts(limit_bytes=2 * GIB, source=MemorySource.SLURM)


@pytest.mark.parametrize("files", UNLIMITED)
@pytest.mark.parametrize("environment", [{}, {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "0"}])
def test_without_both_there_is_no_figure_and_never_the_nodes_total(
    tmp_path: Path, files: Mapping[str, str], environment: Mapping[str, str]
) -> None:
    assert memory_of(tmp_path, files, environment) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SLURM_MEM_PER_NODE": "512"}, 512 * MIB),
        ({"SLURM_MEM_PER_NODE": "512M"}, 512 * MIB),
        ({"SLURM_MEM_PER_NODE": "4096k"}, 4 * MIB),
        ({"SLURM_MEM_PER_NODE": "16G"}, 16 * GIB),
        ({"SLURM_MEM_PER_NODE": "1T"}, 1024 * GIB),
        ({"SLURM_MEM_PER_NODE": "16GB"}, 16 * GIB),
        ({"SLURM_MEM_PER_NODE": "all"}, None),
        ({"SLURM_MEM_PER_NODE": ""}, None),
        ({"SLURM_MEM_PER_CPU": "2G", "SLURM_CPUS_ON_NODE": "8"}, 16 * GIB),
        ({"SLURM_MEM_PER_CPU": "1024", "SLURM_JOB_CPUS_PER_NODE": "4"}, 4 * GIB),
        ({"SLURM_MEM_PER_CPU": "1024", "SLURM_JOB_CPUS_PER_NODE": "4(x3)"}, 4 * GIB),
        (
            {
                "SLURM_MEM_PER_CPU": "1024",
                "SLURM_JOB_CPUS_PER_NODE": "4(x2),6",
                "SLURM_NODEID": "2",
            },
            6 * GIB,
        ),
        ({"SLURM_MEM_PER_CPU": "1024", "SLURM_JOB_CPUS_PER_NODE": "4(x2),6"}, None),
        (
            {
                "SLURM_MEM_PER_CPU": "1024",
                "SLURM_JOB_CPUS_PER_NODE": "4,6",
                "SLURM_NODEID": "2",
            },
            None,
        ),
        ({"SLURM_MEM_PER_CPU": "1024", "SLURM_JOB_CPUS_PER_NODE": "some"}, None),
        ({"SLURM_MEM_PER_CPU": "1024"}, None),
        ({"SLURM_MEM_PER_GPU": "32G", "SLURM_GPUS_ON_NODE": "2"}, 64 * GIB),
        ({"SLURM_MEM_PER_GPU": "32G", "SLURM_GPUS_PER_NODE": "a100:2,v100:1"}, 96 * GIB),
        ({"SLURM_MEM_PER_GPU": "32G", "SLURM_JOB_GPUS": "0,2-3"}, 96 * GIB),
        ({"SLURM_MEM_PER_GPU": "32G", "SLURM_JOB_GPUS": "GPU-1"}, None),
        ({"SLURM_MEM_PER_GPU": "32G", "SLURM_GPUS_ON_NODE": "many"}, None),
        ({"SLURM_MEM_PER_GPU": "32G"}, None),
        (
            {
                "SLURM_MEM_PER_NODE": "64G",
                "SLURM_MEM_PER_CPU": "1G",
                "SLURM_CPUS_ON_NODE": "4",
            },
            4 * GIB,
        ),
    ],
)
def test_slurms_variables_times_their_counts_in_their_units(
    environment: Mapping[str, str], expected: int | None
) -> None:
    assert slurm_memory(environment) == expected


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "SLURM_MEM_PER_NODE",
                "SLURM_MEM_PER_CPU",
                "SLURM_CPUS_ON_NODE",
                "SLURM_MEM_PER_GPU",
                "SLURM_GPUS_ON_NODE",
                "SLURM_JOB_CPUS_PER_NODE",
                "SLURM_NODEID",
                "SLURM_JOB_GPUS",
            ]
        ),
        st.text(max_size=12) | st.from_regex(r"[0-9]{1,4}[KMGT(x),-]?[0-9]{0,3}", fullmatch=True),
    )
)
def test_whatever_slurms_variables_hold_it_is_a_size_or_none(
    environment: Mapping[str, str],
) -> None:
    found = slurm_memory(environment)
    assert found is None or found > 0
