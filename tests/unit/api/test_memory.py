"""The memory that is left, on both cgroup versions, inside a container and outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain_api.memory import MemoryCgroup

GIB = 1 << 30
MACHINE = "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n"


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in {"proc/meminfo": MACHINE, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def v2(path: str, limit: str, usage: int, cache: int = 0) -> dict[str, str]:
    return {
        f"sys/fs/cgroup/{path}memory.max": f"{limit}\n",
        f"sys/fs/cgroup/{path}memory.current": f"{usage}\n",
        f"sys/fs/cgroup/{path}memory.stat": f"anon 5\ninactive_file {cache}\n",
        f"sys/fs/cgroup/{path}memory.events": "low 0\noom 3\noom_kill 2\n",
    }


def v1(path: str, limit: int, usage: int, cache: int = 0) -> dict[str, str]:
    base = f"sys/fs/cgroup/memory/{path}memory"
    return {
        f"{base}.limit_in_bytes": f"{limit}\n",
        f"{base}.usage_in_bytes": f"{usage}\n",
        f"{base}.stat": f"cache 9\ninactive_file 1\ntotal_inactive_file {cache}\n",
        f"{base}.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
    }


V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("files", "available", "limit", "oom_kills"),
    [
        pytest.param({}, 8 * GIB, 16 * GIB, 0, id="no cgroup at all"),
        pytest.param(
            {
                "proc/self/cgroup": "0::/\n",
                "proc/self/mountinfo": V2_MOUNT,
                **v2("", str(4 * GIB), 3 * GIB, 1 * GIB),
            },
            2 * GIB,
            4 * GIB,
            2,
            id="v2 in a container: page cache counts as free",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/pods/mine\n",
                "proc/self/mountinfo": V2_MOUNT,
                **v2("pods/mine/", "max", 5),
                **v2("pods/", str(2 * GIB), 1 * GIB),
            },
            1 * GIB,
            2 * GIB,
            2,
            id="v2: the limit of a parent counts",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/pods/mine/leaf\n",
                "proc/self/mountinfo": V2_MOUNT,
                "sys/fs/cgroup/pods/mine/leaf/cgroup.procs": "1\n",
                **v2("pods/mine/", str(2 * GIB), 1 * GIB),
            },
            1 * GIB,
            2 * GIB,
            2,
            id="v2: the controller ends above our cgroup",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/mine\n",
                "proc/self/mountinfo": V2_MOUNT,
                **v2("mine/", "max", 5),
            },
            8 * GIB,
            16 * GIB,
            2,
            id="v2 without a limit",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "5:cpu:/\n4:memory:/docker/abc\n0::/\n",
                "proc/self/mountinfo": V1_MOUNT,
                **v1("", 3 * GIB, 2 * GIB, GIB // 2),
            },
            3 * GIB // 2,
            3 * GIB,
            4,
            id="v1 in a container: the host's path is not visible there",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/mine\n",
                "proc/self/mountinfo": V1_MOUNT,
                **v1("mine/", 9223372036854771712, 2 * GIB),
            },
            8 * GIB,
            16 * GIB,
            4,
            id="v1 without a limit",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/\n",
                "proc/self/mountinfo": V2_MOUNT,
                **v2("", str(1 * GIB), 2 * GIB),
            },
            0,
            1 * GIB,
            2,
            id="over the limit is nothing left, not less",
        ),
    ],
)
def test_the_least_of_cgroup_and_machine(
    tmp_path: Path, files: dict[str, str], available: int, limit: int, oom_kills: int
) -> None:
    write(tmp_path, files)
    cgroup = MemoryCgroup(tmp_path)
    assert cgroup.available().bytes == available
    assert cgroup.limit_bytes() == limit
    assert cgroup.oom_kills() == oom_kills


def test_the_figure_says_where_it_comes_from(tmp_path: Path) -> None:
    write(tmp_path, {})
    assert MemoryCgroup(tmp_path).available().source == "MemAvailable of the machine"
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": V2_MOUNT,
            **v2("", str(GIB), 0),
        },
    )
    source = MemoryCgroup(tmp_path).available().source
    assert source.endswith(f"memory.max ({GIB} bytes) minus what is in use")


def test_here() -> None:
    cgroup = MemoryCgroup()
    assert 0 < cgroup.available().bytes < cgroup.limit_bytes()
