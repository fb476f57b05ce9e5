"""CPUs that the process may run on: hardware threads, and the physical cores they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.timings.hardware import CpuFacts
from drivetrain_trainer.hardware.clock import CPUS, clock_range
from drivetrain_trainer.hardware.cpuinfo import processors
from drivetrain_trainer.hardware.files import list_of, number_of, text_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from drivetrain_trainer.hardware.cpuinfo import Processor

_LONGEST = 253
_SIBLINGS = ("core_cpus_list", "thread_siblings_list")
"""Hardware threads of a core: its name since Linux 5.3, and the one before."""


def cpu_facts(root: Path, affinity: AbstractSet[int]) -> CpuFacts:
    """What the system shows of the CPUs in an affinity mask.

    Args:
        root: Where ``proc`` and ``sys`` lie.
        affinity: Indices of the CPUs.
    """
    listed = processors(root)
    by_index = {processor.index: processor for processor in listed}
    names = (by_index[cpu].name for cpu in sorted(affinity) if cpu in by_index)
    name = next((name for name in names if name), None)
    return CpuFacts(
        guest_visible_name=None if name is None else name[:_LONGEST],
        logical_threads=len(affinity),
        physical_cores=_cores(root, affinity, by_index),
        clock=clock_range(root, affinity, listed),
    )


def _cores(root: Path, affinity: AbstractSet[int], listed: Mapping[int, Processor]) -> int | None:
    """Distinct cores with a thread in the mask; None where one of them is not told."""
    cores: set[Hashable] = set()
    for cpu in affinity:
        core = _core(root / CPUS / f"cpu{cpu}/topology", listed.get(cpu))
        if core is None:
            return None
        cores.add(core)
    return len(cores)


def _core(topology: Path, listed: Processor | None) -> Hashable | None:
    """What is equal for threads of one core."""
    for name in _SIBLINGS:
        text = text_of(topology / name)
        if text:
            try:
                return list_of(text)
            except ValueError:
                continue
    names = ("physical_package_id", "die_id", "core_id")
    package, die, core = (number_of(topology / name) for name in names)
    if package is not None and core is not None:
        return package, die, core
    return None if listed is None else listed.core
