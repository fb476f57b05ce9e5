"""Whether a rank's tensors have room: asked before its processes are started.

Ranks that share a device, or a pod's memory, share what may be planned for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_api import budget as arithmetic
from drivetrain_api.errors import SpecError, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivetrain_api.budget import MemoryBudget
    from drivetrain_api.memory import AvailableMemory

_MIB: Final = arithmetic.MIB


@dataclass(frozen=True)
class MemoryRoom:
    """What a pod has left before its ranks have begun."""

    host: AvailableMemory
    """Of the memory cgroup, else of the machine."""
    device: AvailableMemory | None
    """Of a device; None where none tells."""
    processes: int
    """Bytes of the host's that the processes themselves will still take."""

    def check(self, budget: MemoryBudget, learners: Sequence[str], local_rank: int) -> None:
        """Refuse a budget that does not fit.

        Args:
            budget: Of each rank.
            learners: Devices of the pod's learners.
            local_rank: Which of them is asked about.

        Raises:
            SpecError: naming the setting to change, with the arithmetic.
        """
        if not budget.sizes.on_device:
            self._check_host(lambda left: arithmetic.check(budget, left, ranks=len(learners)))
            return
        if self.device is not None:
            check_device(budget, self.device.bytes, learners, local_rank)
        self._check_host(lambda left: arithmetic.check_shared(budget, left, ranks=len(learners)))

    def _check_host(self, check: Callable[[int], None]) -> None:
        try:
            check(max(0, self.host.bytes - self.processes))
        except SpecError as error:
            note = (
                f"; available is {self.host.bytes / _MIB:.1f} MiB ({self.host.source}) less "
                f"{self.processes / _MIB:.0f} MiB for the processes themselves"
            )
            raise SpecError(
                tuple(Violation(found.path, found.message + note) for found in error.violations)
            ) from error


def check_device(budget: MemoryBudget, free: int, learners: Sequence[str], local_rank: int) -> None:
    """Refuse a budget above a rank's part of 0.8 of its device's free memory.

    Raises:
        SpecError: naming the setting to change, with the arithmetic.
    """
    device = learners[local_rank]
    arithmetic.check(budget, free, ranks=learners.count(device), memory=f"free on {device}")
