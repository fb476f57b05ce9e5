"""What the ranks' collectors make a second, such that their sum is the job's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.metrics import Quantity, Unit
from drivetrain_trainer.telemetry.timeline import TOTAL_FPS

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.collector_report import CollectorReport


class StepRate:
    """A rank's Steps/s, of which the job's is the sum over all ranks.

    Between two reports of the learner a collector may have published nothing. With several
    ranks its latest rate is submitted again then: a sum that leaves a rank out is no job's.
    """

    def __init__(self, *, hold: bool) -> None:
        self._hold = hold
        self._latest: float | None = None

    def of(self, collected: CollectorReport | None) -> dict[str, Quantity]:
        """What to submit beside a report of the collector, or without one."""
        if collected is not None:
            self._latest = collected.steps_per_second
        elif not self._hold:
            return {}
        if self._latest is None:
            return {}
        return {TOTAL_FPS: Quantity(self._latest, Unit.STEPS_PER_SECOND)}
