"""What a timed process could see of its machine: one description, and its stable id."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from drivetrain_api.artifacts.base import ArtifactModel
from drivetrain_api.base import PositiveFloat, PositiveInt, ShortText, StepOffset

HardwareId = Annotated[
    str, Field(strict=True, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
]
"""``hw-`` and the start of a hash where this system made it."""

_DIGITS: Final = 16
Megahertz = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0)]


class _Facts(ArtifactModel):
    """Facts that are not known are null in memory and absent in the file; unknown keys stay."""

    model_config = ConfigDict(extra="allow")


class MemorySource(StrEnum):
    """Who limits the memory."""

    CGROUP_V1 = "cgroup_v1"
    CGROUP_V2 = "cgroup_v2"
    SLURM = "slurm"


class ClockSource(StrEnum):
    """Who tells the clock's range."""

    CPUFREQ = "cpufreq"
    """Linux cpufreq."""
    CPUFREQ_CPPC = "cpufreq+cppc"
    """cpufreq, with a maximum that ACPI CPPC extends."""
    CPPC = "cppc"
    """ACPI CPPC alone, which tells a maximum."""
    KVM_TSC = "kvm_tsc"
    """A KVM guest's fixed frequency, as /proc/cpuinfo shows it."""


class Scheduler(StrEnum):
    """Batch systems whose metadata is kept."""

    SLURM = "slurm"
    PBS = "pbs"


class MemoryFacts(_Facts):
    """Memory that the process was allowed."""

    limit_bytes: StepOffset
    """Bytes."""
    source: MemorySource
    """Where the limit stands."""


class ClockRange(_Facts):
    """Clock of the CPUs that the process could run on."""

    min_mhz: Megahertz | None = None
    """Least of the CPUs' minima."""
    max_mhz: Megahertz
    """Greatest of the CPUs' maxima."""
    source: ClockSource
    """Who tells it."""


class CpuFacts(_Facts):
    """CPUs that the process could run on."""

    guest_visible_name: ShortText | None = None
    """The processor's name as this system shows it: in a virtual machine, not necessarily
    that of the physical host."""
    logical_threads: PositiveInt
    """Hardware threads in the affinity mask."""
    physical_cores: PositiveInt | None = None
    """Distinct cores that they belong to; null where the topology is not told."""
    clock: ClockRange | None = None
    """Null where no interface tells it."""


class GpuFacts(_Facts):
    """One NVIDIA GPU that the process could use, as far as NVML told."""

    model: ShortText | None = None
    """Such as NVIDIA H100 80GB HBM3."""
    usable_vram_bytes: StepOffset | None = None
    """Memory less what the driver and firmware reserve."""
    memory_bus_width_bits: PositiveInt | None = None
    """Width of the memory bus."""
    max_memory_clock_mhz: PositiveInt | None = None
    """Greatest clock of the memory."""
    peak_memory_bandwidth_gb_s: PositiveFloat | None = None
    """10^9 bytes a second, derived from bus width and clock; null where either is unknown."""


class SchedulerJob(_Facts):
    """The batch job that the process ran in."""

    scheduler: Scheduler
    """Batch system."""
    variables: Annotated[dict[ShortText, ShortText], Field(max_length=64)]
    """Its variables, as they were in the environment."""


class HardwareRecord(_Facts):
    """What a timed process could see; node totals that it was not given are not in it."""

    cpu: CpuFacts
    """CPUs in its affinity mask."""
    memory: MemoryFacts | None = None
    """Null where nothing limits it: the machine's memory is not taken in its place."""
    gpus: Annotated[tuple[GpuFacts, ...], Field(max_length=256)] = ()
    """Visible GPUs, in the order of their bus."""
    jobs: Annotated[tuple[SchedulerJob, ...], Field(max_length=2)] = ()
    """Slurm's and PBS's metadata, where it ran under them."""

    @property
    def hardware_id(self) -> str:
        """The same for equal descriptions, on every machine and in every process.

        SHA-256 of the description as JSON with sorted keys, without blanks and without what is
        not known; the first 16 digits.
        """
        content = self.model_dump(mode="json", exclude_none=True)
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return f"hw-{hashlib.sha256(canonical.encode()).hexdigest()[:_DIGITS]}"
