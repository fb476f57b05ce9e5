"""Files of /proc and /sys that make up a machine, below a folder of a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
HYBRID_MOUNTS = V1_MOUNT + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
V1_UNLIMITED = 9223372036854771712
"""What cgroup v1 writes where there is no limit: the greatest multiple of a page."""


def write_files(root: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def v2_limits(base: str, limits: Mapping[str, int | str]) -> dict[str, str]:
    """memory.max of cgroups, by their path below the mount ``base``."""
    files = {}
    for path, limit in limits.items():
        files[f"{base}/{path}/memory.max"] = f"{limit}\n"
        files[f"{base}/{path}/memory.current"] = "1\n"
    return files


def v1_limits(limits: Mapping[str, int]) -> dict[str, str]:
    files = {}
    for path, limit in limits.items():
        files[f"sys/fs/cgroup/memory/{path}/memory.limit_in_bytes"] = f"{limit}\n"
        files[f"sys/fs/cgroup/memory/{path}/memory.usage_in_bytes"] = "1\n"
    return files


def cpuinfo(*readings: float | None, flags: str = "fpu hypervisor tsc_known_freq") -> str:
    """Entries of /proc/cpuinfo with these frequencies, two threads a core."""
    return "\n".join(
        cpuinfo_entry(index, megahertz, flags=flags) for index, megahertz in enumerate(readings)
    )


def cpuinfo_entry(index: int, megahertz: float | None, *, flags: str) -> str:
    reading = "" if megahertz is None else f"cpu MHz\t\t: {megahertz:.3f}\n"
    return (
        f"processor\t: {index}\nmodel name\t: Guest CPU @ 2.50GHz\n{reading}"
        f"physical id\t: 0\ncore id\t\t: {index // 2}\nflags\t\t: {flags}\n"
    )


def cpufreq(cpu: int, least: int, greatest: int) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
    return {
        f"{folder}/cpuinfo_min_freq": f"{least}\n",
        f"{folder}/cpuinfo_max_freq": f"{greatest}\n",
    }


def cppc(cpu: int, frequency: int, highest: int, nominal: int) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu{cpu}/acpi_cppc"
    return {
        f"{folder}/nominal_freq": f"{frequency}\n",
        f"{folder}/highest_perf": f"{highest}\n",
        f"{folder}/nominal_perf": f"{nominal}\n",
    }
