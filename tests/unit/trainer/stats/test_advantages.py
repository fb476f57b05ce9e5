from __future__ import annotations

import math

import pytest
import torch

from drivetrain_trainer.stats import StatsError, StatsTracker
from drivetrain_trainer.stats.advantages import record_advantage_signs

P = "ppo_actor/advantage_"


def test_shares_of_positions_under_the_mask() -> None:
    tracker = StatsTracker()
    # Valid: 2.0, -0.5, 0.0, -0.0, 3.0, 1e-30, -1.0, 4.0: 4 positive, 2 negative, 2 zero of 8.
    advantages = torch.tensor([[2.0, -0.5, 0.0, -0.0, 9.0], [3.0, 1e-30, -1.0, 4.0, math.nan]])
    mask = torch.tensor([[True] * 4 + [False], [True] * 4 + [False]])
    record_advantage_signs(tracker, advantages, mask)
    assert tracker.export() == {
        P + "positive_fraction": 0.5,
        P + "negative_fraction": 0.25,
        P + "zero_fraction": 0.25,
        "ppo_actor/n_advantages": 8.0,
    }


def test_a_nan_has_no_sign() -> None:
    tracker = StatsTracker()
    record_advantage_signs(tracker, torch.tensor([1.0, math.nan]), torch.ones(2, dtype=torch.bool))
    found = tracker.export()
    assert sum(found[P + f"{sign}_fraction"] for sign in ("positive", "negative", "zero")) == 0.5


def test_wrong_masks_are_refused() -> None:
    tracker = StatsTracker()
    with pytest.raises(StatsError, match="must be the same"):
        record_advantage_signs(tracker, torch.ones(2), torch.ones(3, dtype=torch.bool))
    with pytest.raises(StatsError, match="must be a bool tensor"):
        record_advantage_signs(tracker, torch.ones(2), torch.ones(2))
