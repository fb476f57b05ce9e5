"""Steps/s of ranks whose collectors publish at different moments."""

from __future__ import annotations

import pytest

from drivetrain_api.metrics import Quantity, Unit
from drivetrain_trainer.runtime.collector_report import CollectorReport, CollectorTotals
from drivetrain_trainer.training.step_rate import StepRate


def collected(env_steps: int, seconds: float) -> CollectorReport:
    return CollectorReport(
        tick=1,
        ticks=1,
        seconds=seconds,
        env_steps=env_steps,
        metrics={},
        log={},
        totals=CollectorTotals(),
    )


def steps_per_second(value: float) -> dict[str, Quantity]:
    return {"Perf/total_fps": Quantity(value, Unit.STEPS_PER_SECOND)}


@pytest.mark.parametrize("several", [False, True])
def test_a_rank_is_in_each_sum_of_the_jobs_rate(several: bool) -> None:
    rate = StepRate(hold=several)
    assert rate.of(None) == {}, "nothing was collected yet"
    assert rate.of(collected(40, 2.0)) == steps_per_second(20.0)
    # A sum over several ranks must not lack one; a rank alone says nothing twice.
    assert rate.of(None) == (steps_per_second(20.0) if several else {})
    assert rate.of(collected(30, 1.0)) == steps_per_second(30.0)
