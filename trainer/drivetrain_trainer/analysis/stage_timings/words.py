"""Hardware in a person's words, and the one word for it in a table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from drivetrain_api.timings.hardware import ClockSource, MemorySource, Scheduler
from drivetrain_trainer.analysis.stage_timings.reading import Hardware, HardwareKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.timings.hardware import ClockRange, GpuFacts, HardwareRecord, SchedulerJob

_GIB: Final = 1 << 30
_SOURCES: Final = {
    MemorySource.CGROUP_V1: "cgroup v1 limit",
    MemorySource.CGROUP_V2: "cgroup v2 limit",
    MemorySource.SLURM: "Slurm allocation",
}
_JOB_IDS: Final = {Scheduler.SLURM: "SLURM_JOB_ID", Scheduler.PBS: "PBS_JOBID"}
_JOB_NAMES: Final = {Scheduler.SLURM: "Slurm", Scheduler.PBS: "PBS"}


def short(hardware: Hardware) -> str:
    """For a table's column."""
    if hardware.kind is HardwareKind.LEGACY:
        sizes = (hardware.system_ram_gb, hardware.gpu_ram_gb)
        return "legacy " + "/".join("-" if size is None else f"{size:g}" for size in sizes)
    return hardware.id or "unknown"


def described(hardware: Hardware, descriptions: Mapping[str, HardwareRecord]) -> str:
    """What is known of it, on one line."""
    if hardware.kind is HardwareKind.LEGACY:
        sizes = [
            f"{size:g} GB of {what}"
            for size, what in (
                (hardware.system_ram_gb, "system memory"),
                (hardware.gpu_ram_gb, "GPU memory"),
            )
            if size is not None
        ]
        return (
            f"legacy metadata of a historical file: {', '.join(sizes)}; "
            "of the machine of then, not of this one"
        )
    if hardware.id is None:
        return "the record names no hardware"
    record = descriptions.get(hardware.id)
    return "not described in timings_hardware.json" if record is None else of_record(record)


def of_record(record: HardwareRecord) -> str:
    """A description on one line; what is not known is not mentioned."""
    parts = [_cpu(record)]
    if record.memory is not None:
        size = f"{record.memory.limit_bytes / _GIB:.4g} GiB"
        parts.append(f"{size} of memory ({_SOURCES[record.memory.source]})")
    counted = Counter(_gpu(gpu) for gpu in record.gpus)
    parts += [words if count == 1 else f"{count} x {words}" for words, count in counted.items()]
    parts += [_job(job) for job in record.jobs]
    return "; ".join(parts)


def _cpu(record: HardwareRecord) -> str:
    cpu = record.cpu
    threads = _counted(cpu.logical_threads, "thread")
    cores = "" if cpu.physical_cores is None else f" on {_counted(cpu.physical_cores, 'core')}"
    name = "" if cpu.guest_visible_name is None else f"{cpu.guest_visible_name}, "
    clock = "" if cpu.clock is None else f", {_clock(cpu.clock)}"
    return f"{name}{threads}{cores}{clock}"


def _clock(clock: ClockRange) -> str:
    if clock.source is ClockSource.KVM_TSC:
        return f"{clock.max_mhz:.0f} MHz (the guest's view)"
    least = "up to " if clock.min_mhz is None else f"{clock.min_mhz:.0f} to "
    return f"{least}{clock.max_mhz:.0f} MHz"


def _gpu(gpu: GpuFacts) -> str:
    facts = []
    if gpu.usable_vram_bytes is not None:
        facts.append(f"{gpu.usable_vram_bytes / _GIB:.4g} GiB")
    if gpu.peak_memory_bandwidth_gb_s is not None:
        facts.append(f"peak {gpu.peak_memory_bandwidth_gb_s:.0f} GB/s")
    shown = f" ({', '.join(facts)})" if facts else ""
    return f"{gpu.model or 'a GPU that tells nothing'}{shown}"


def _job(job: SchedulerJob) -> str:
    number = job.variables.get(_JOB_IDS[job.scheduler])
    return f"{_JOB_NAMES[job.scheduler]} job{'' if number is None else f' {number}'}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
