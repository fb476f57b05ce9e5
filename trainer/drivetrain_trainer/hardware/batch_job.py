"""The Slurm or PBS job that a process runs in: its metadata, and the memory that it was given.

Sources: OUTPUT ENVIRONMENT VARIABLES of sbatch(1) and srun(1); the PBS Professional and
OpenPBS user's guides, PBS Environment Variables.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from drivetrain_api.timings.hardware import Scheduler, SchedulerJob
from drivetrain_trainer.hardware.files import list_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_SLURM: Final = (
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CLUSTER_NAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS",
    "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_GPUS",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_QOS",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NTASKS",
    "SLURM_STEP_ID",
)
_PBS: Final = (
    "NCPUS",
    "PBS_ARRAY_ID",
    "PBS_ARRAY_INDEX",
    "PBS_ENVIRONMENT",
    "PBS_JOBID",
    "PBS_JOBNAME",
    "PBS_NP",
    "PBS_NUM_NODES",
    "PBS_NUM_PPN",
    "PBS_QUEUE",
    "PBS_SERVER",
)
_LONGEST: Final = 253
_UNITS: Final = {"": 20, "K": 10, "M": 20, "G": 30, "T": 40}
"""Powers of two; Slurm's plain numbers are mebibytes."""


def batch_jobs(environment: Mapping[str, str]) -> tuple[SchedulerJob, ...]:
    """Metadata of the jobs that the environment tells of; none outside a batch system.

    A list that is longer than a label may be (of nodes, say) is cut.
    """
    found = []
    for scheduler, known, marker in (
        (Scheduler.SLURM, _SLURM, "SLURM_"),
        (Scheduler.PBS, _PBS, "PBS_"),
    ):
        variables = {name: environment[name][:_LONGEST] for name in known if name in environment}
        if any(name.startswith(marker) for name in variables):
            found.append(SchedulerJob(scheduler=scheduler, variables=variables))
    return tuple(found)


def slurm_memory(environment: Mapping[str, str]) -> int | None:
    """Bytes on this node that Slurm allocated to the job; None where it does not tell.

    ``SLURM_MEM_PER_NODE``, or ``_PER_CPU`` times the job's CPUs on this node, or ``_PER_GPU``
    times its GPUs here; the least where several are set. A zero asks for all of a node and so
    states no limit.
    """
    per_unit = (
        (environment.get("SLURM_MEM_PER_NODE"), 1),
        (environment.get("SLURM_MEM_PER_CPU"), _cpus_here(environment)),
        (environment.get("SLURM_MEM_PER_GPU"), _gpus_here(environment)),
    )
    sizes = [(_bytes(size), count) for size, count in per_unit]
    return min((size * count for size, count in sizes if size and count), default=None)


def _bytes(size: str | None) -> int | None:
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", (size or "").strip().upper(), re.ASCII)
    return int(match[1]) << _UNITS[match[2]] if match else None


def _cpus_here(environment: Mapping[str, str]) -> int | None:
    told = environment.get("SLURM_CPUS_ON_NODE")
    if told is not None and re.fullmatch(r"\d+", told, re.ASCII):
        return int(told)
    return _of_node(environment.get("SLURM_JOB_CPUS_PER_NODE"), environment)


def _of_node(counts: str | None, environment: Mapping[str, str]) -> int | None:
    """This node's part of a list such as ``72(x2),36``, by its place in the job."""
    counted: list[int] = []
    for part in (counts or "").split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d{1,6})\))?", part.strip(), re.ASCII)
        if match is None:
            return None
        counted += [int(match[1])] * int(match[2] or 1)
    place = environment.get("SLURM_NODEID")
    if len(set(counted)) == 1:
        return counted[0]
    if place is None or not re.fullmatch(r"\d+", place, re.ASCII) or int(place) >= len(counted):
        return None
    return counted[int(place)]


def _gpus_here(environment: Mapping[str, str]) -> int | None:
    told = environment.get("SLURM_GPUS_ON_NODE") or environment.get("SLURM_GPUS_PER_NODE")
    if told is not None:
        # By type: `a100:2,v100:1`; or a bare number.
        counts = [part.rpartition(":")[2].partition("(")[0] for part in told.split(",")]
        numeric = all(re.fullmatch(r"\d+", count, re.ASCII) for count in counts)
        return sum(int(count) for count in counts) if numeric else None
    listed = environment.get("SLURM_JOB_GPUS")
    try:
        return len(list_of(listed)) if listed else None
    except ValueError:
        return None
