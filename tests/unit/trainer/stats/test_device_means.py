from __future__ import annotations

import math

import pytest
import torch

from drivetrain_trainer.stats import DeviceMeans, ReduceType, StatsError, StatsTracker

CPU = torch.device("cpu")
SOUND, SKIPPED = torch.tensor(data=False), torch.tensor(data=True)


def test_means_leave_skipped_steps_out_and_start_anew() -> None:
    tracker = StatsTracker()
    means, idle = DeviceMeans(("Loss/a", "b"), CPU), DeviceMeans(("c",), CPU)
    means.add((torch.tensor(1.0), torch.tensor(-2.0)), skipped=SOUND)
    means.add((torch.tensor(math.nan), torch.tensor(math.inf)), skipped=SKIPPED)
    means.add((torch.tensor(3.0), torch.tensor(4.0)), skipped=SOUND)
    for one in (means, idle):
        one.hand_over(tracker)
    assert tracker.export() == {"Loss/a": 2.0, "b": 1.0}
    means.hand_over(tracker)
    assert tracker.export() == {}


def test_what_was_handed_over_weighs_by_its_steps() -> None:
    tracker = StatsTracker()
    means = DeviceMeans(("a",), CPU)
    for values in ((1.0,), (5.0, 9.0)):
        for value in values:
            means.add((torch.tensor(value),), skipped=SOUND)
        means.hand_over(tracker)
    assert tracker.export() == {"a": 5.0}


def test_a_nan_that_was_not_skipped_is_told() -> None:
    tracker = StatsTracker()
    means = DeviceMeans(("a",), CPU)
    means.add((torch.tensor(math.nan),), skipped=SOUND)
    means.hand_over(tracker)
    assert math.isnan(tracker.export()["a"])


def test_figures_of_another_form_are_refused() -> None:
    tracker = StatsTracker()
    with pytest.raises(StatsError, match=r"'a' are torch.float32 \(4,\)"):
        tracker.stat_figures(ReduceType.AVG, a=torch.zeros(4))
    with pytest.raises(StatsError, match="ask for SCALAR"):
        tracker.stat_figures(ReduceType.SCALAR, a=torch.zeros(4, dtype=torch.float64))
