"""Range of the CPUs' clock: Linux cpufreq, ACPI CPPC, or a KVM guest's fixed frequency.

Sources: Documentation/admin-guide/pm/cpufreq.rst and admin-guide/acpi/cppc_sysfs.rst of Linux.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_api.timings.hardware import ClockRange, ClockSource
from drivetrain_trainer.hardware.files import number_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from drivetrain_trainer.hardware.cpuinfo import Processor

CPUS: Final = "sys/devices/system/cpu"
GUEST_FLAGS: Final = frozenset({"hypervisor", "tsc_known_freq"})
_TOLERANCE_KHZ: Final = 100
"""Readings of a guest's CPUs agree within 0.1 MHz."""


def clock_range(
    root: Path, cpus: Collection[int], processors: Collection[Processor]
) -> ClockRange | None:
    """What the interfaces tell of these CPUs; None where none of them tells.

    Args:
        root: Where ``sys`` lies.
        cpus: The CPUs that the process may run on.
        processors: Entries of /proc/cpuinfo, all that the system shows.
    """
    folders = [root / CPUS / f"cpu{cpu}" for cpu in sorted(cpus)]
    least = _told(_khz(folder, "cpuinfo_min_freq") for folder in folders)
    greatest = _told(_khz(folder, "cpuinfo_max_freq") for folder in folders)
    extended = _told(_cppc_khz(folder) for folder in folders)
    if greatest and extended and max(extended) > max(greatest):
        return _range(least, max(extended), ClockSource.CPUFREQ_CPPC)
    if greatest:
        return _range(least, max(greatest), ClockSource.CPUFREQ)
    if extended:
        return _range([], max(extended), ClockSource.CPPC)
    return _of_guest(cpus, processors)


def _range(least: list[float], greatest: float, source: ClockSource) -> ClockRange:
    lowest = min(least, default=None)
    return ClockRange(
        min_mhz=None if lowest is None else lowest / 1000, max_mhz=greatest / 1000, source=source
    )


def _told(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and value > 0]


def _khz(folder: Path, name: str) -> int | None:
    return number_of(folder / "cpufreq" / name)


def _cppc_khz(folder: Path) -> float | None:
    """nominal_freq * highest_perf / nominal_perf; performance is on CPPC's abstract scale."""
    names = ("nominal_freq", "highest_perf", "nominal_perf")
    frequency, highest, nominal = (number_of(folder / "acpi_cppc" / name) for name in names)
    if not frequency or not highest or not nominal:
        return None
    return frequency * 1000 * highest / nominal


def _of_guest(cpus: Collection[int], processors: Collection[Processor]) -> ClockRange | None:
    """The fixed frequency of a KVM guest, where all of its CPUs say the same and that it is fixed.

    Every CPU that the guest sees counts, also those that the process may not run on.
    """
    readings = [processor.khz for processor in processors]
    told = [khz for khz in readings if khz is not None]
    listed = {processor.index for processor in processors}
    if not told or len(told) < len(readings) or not listed.issuperset(cpus):
        return None
    if not all(processor.flags >= GUEST_FLAGS for processor in processors):
        return None
    if max(told) - min(told) > _TOLERANCE_KHZ:
        return None
    # To 0.1 MHz, so that the description is the same however the readings stray within that.
    fixed = round(sum(told) / len(told) / 1000, 1)
    return ClockRange(min_mhz=fixed, max_mhz=fixed, source=ClockSource.KVM_TSC) if fixed else None
