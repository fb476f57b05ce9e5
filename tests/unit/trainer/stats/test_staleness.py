from __future__ import annotations

import pytest
import torch

from drivetrain_trainer.stats import StatsTracker
from drivetrain_trainer.stats.staleness import NO_VERSION, record_staleness, shift_to_predicted

P = "ppo_actor/update/version_stats/"


def exported(tracker: StatsTracker) -> dict[str, float]:
    return {key.removeprefix(P): value for key, value in tracker.export().items()}


def both(name: str, value: float) -> dict[str, float]:
    return {f"sample_staleness_{family}_{name}": value for family in ("theta", "proximal")}


def test_ages_of_valid_positions_with_a_version() -> None:
    tracker = StatsTracker()
    # Published: 7. Counted: versions 7, 5, 4, 8, so ages 0, 2, 3, -1: mean 1, stale 2 of 4,
    # future 1 of 4. Left out: a masked 0, and a -1 without a version.
    record_staleness(
        tracker,
        behaviour_version=torch.tensor([[7, 5, 4], [8, 0, NO_VERSION]]),
        published_version=7,
        mask=torch.tensor([[True, True, True], [True, False, True]]),
    )
    assert exported(tracker) == {
        **both("avg", 1.0),
        **both("min", -1.0),
        **both("max", 3.0),
        "stale_token_fraction": 0.5,
        "future_token_fraction": 0.25,
        "n_valid_generated_tokens": 4.0,
    }


def test_calls_weigh_by_position_and_reuse_counts_again() -> None:
    tracker = StatsTracker()
    for published, versions in ((1, [1, 1, 1]), (2, [1, 1, 1]), (9, [0])):
        record_staleness(
            tracker, behaviour_version=torch.tensor(versions), published_version=published
        )
    # Ages 0, 0, 0, 1, 1, 1, 9.
    found = exported(tracker)
    assert found["sample_staleness_theta_avg"] == pytest.approx(12 / 7)
    assert found["sample_staleness_theta_max"] == 9.0
    assert found["n_valid_generated_tokens"] == 7.0


def test_without_a_valid_position_means_and_extremes_are_left_out() -> None:
    tracker = StatsTracker()
    record_staleness(
        tracker, behaviour_version=torch.tensor([NO_VERSION, NO_VERSION]), published_version=3
    )
    assert exported(tracker) == {"n_valid_generated_tokens": 0.0}


def test_another_actor_has_keys_of_its_own() -> None:
    tracker = StatsTracker()
    record_staleness(
        tracker, behaviour_version=torch.tensor([3]), published_version=4, actor="sac_actor"
    )
    assert tracker.export()["sac_actor/update/version_stats/sample_staleness_theta_avg"] == 1.0


def test_versions_of_tokens_move_to_the_positions_that_predict_them() -> None:
    tokens = torch.tensor([[0, 4, 5, 6], [7, 7, 8, 8]])
    shifted = shift_to_predicted(tokens)
    assert shifted.tolist() == [[4, 5, 6, NO_VERSION], [7, 8, 8, NO_VERSION]]
    assert tokens.tolist() == [[0, 4, 5, 6], [7, 7, 8, 8]]


def test_wrong_input_is_refused() -> None:
    tracker = StatsTracker()
    with pytest.raises(ValueError, match="must be integers"):
        record_staleness(tracker, behaviour_version=torch.ones(2), published_version=1)
    versions = torch.tensor([1, 2])
    with pytest.raises(ValueError, match=r"shape \(2,\), mask of \(1,\)"):
        record_staleness(
            tracker,
            behaviour_version=versions,
            published_version=1,
            mask=torch.ones(1, dtype=torch.bool),
        )
    with pytest.raises(ValueError, match="must be bool"):
        record_staleness(
            tracker, behaviour_version=versions, published_version=1, mask=torch.ones(2).long()
        )
