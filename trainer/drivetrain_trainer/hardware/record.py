"""The description of the hardware that goes beside timings: what this process could see."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from drivetrain_api.memory import MemoryCgroup
from drivetrain_api.timings.hardware import HardwareRecord, MemoryFacts, MemorySource
from drivetrain_trainer.hardware import nvml
from drivetrain_trainer.hardware.batch_job import batch_jobs, slurm_memory
from drivetrain_trainer.hardware.cpu import cpu_facts
from drivetrain_trainer.hardware.gpus import gpu_facts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

_OF_VERSION = {1: MemorySource.CGROUP_V1, 2: MemorySource.CGROUP_V2}


def read_hardware(
    root: Path = Path("/"),
    *,
    environment: Mapping[str, str] = os.environ,
    affinity: AbstractSet[int] | None = None,
    library: str = nvml.LIBRARY,
) -> HardwareRecord:
    """What a process could see; what is not told is missing, and nothing is guessed.

    Args:
        root: Where ``proc`` and ``sys`` lie; another folder in tests alone.
        environment: Of the process.
        affinity: CPUs that it may run on; this process's own where it is not given.
        library: NVIDIA's management library.
    """
    return HardwareRecord(
        cpu=cpu_facts(root, os.sched_getaffinity(0) if affinity is None else affinity),
        memory=_memory(root, environment),
        gpus=gpu_facts(environment, library),
        jobs=batch_jobs(environment),
    )


@cache
def this_process() -> HardwareRecord:
    """`read_hardware` of this process, read once."""
    return read_hardware()


def _memory(root: Path, environment: Mapping[str, str]) -> MemoryFacts | None:
    limit = MemoryCgroup(root).finite_limit()
    if limit is not None:
        return MemoryFacts(limit_bytes=limit.bytes, source=_OF_VERSION[limit.version])
    allocated = slurm_memory(environment)
    if allocated is not None:
        return MemoryFacts(limit_bytes=allocated, source=MemorySource.SLURM)
    return None
