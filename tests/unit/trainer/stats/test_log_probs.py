from __future__ import annotations

import math

import pytest
import torch

from drivetrain_trainer.stats import StatsError, StatsTracker
from drivetrain_trainer.stats.log_probs import absolute_deviation, record_log_probs

P = "ppo_actor/train_infer/"


def exported(
    learner: list[float], behaviour: list[float], mask: list[bool] | None = None
) -> dict[str, float]:
    """Figures without their scope."""
    tracker = StatsTracker()
    valid = torch.tensor(mask if mask is not None else [True] * len(learner))
    record_log_probs(
        tracker, learner=torch.tensor(learner), behaviour=torch.tensor(behaviour), mask=valid
    )
    return {key.removeprefix(P): value for key, value in tracker.export().items()}


def test_every_figure_by_hand() -> None:
    # d = learner - behaviour = 0.5, -0.5, 1.0, -1.0 (exact in binary).
    found = exported([-1.0, -2.0, -0.5, -3.0], [-1.5, -1.5, -1.5, -2.0])
    e = math.exp
    assert found == {
        "n_valid_tokens": 4.0,
        "logp_diff/avg": 0.0,
        "logp_diff/min": -1.0,
        "logp_diff/max": 1.0,
        "logp_abs_diff/avg": 0.75,
        "logp_abs_diff/min": 0.5,
        "logp_abs_diff/max": 1.0,
        "logp_diff_squared": 0.625,  # (0.25 + 0.25 + 1 + 1) / 4
        "trainer_nll": 1.625,  # (1 + 2 + 0.5 + 3) / 4
        "rollout_nll": 1.625,  # (1.5 + 1.5 + 1.5 + 2) / 4
        "kl_k1": 0.0,
        "kl_k2": 0.3125,  # half of 0.625
        # sum of exp(d) - 1 - d: the d cancel
        "kl_k3": pytest.approx((e(0.5) + e(-0.5) + e(1.0) + e(-1.0) - 4.0) / 4.0, rel=1e-12),
        # log 1.5 = 0.405, log 2 = 0.693, log 3 = 1.0986: all; the two of 1.0; none
        "ratio_outside_1.5": 1.0,
        "ratio_outside_2": 0.5,
        "ratio_outside_3": 0.0,
        "ratio_outside_5": 0.0,
        "ratio_outside_10": 0.0,
        "nonfinite_logp_fraction": 0.0,
        "kl_k3_overflow_fraction": 0.0,
    }
    # abs(d) is 0.5, 0.5, 1, 1: variance 0.25^2
    deviation = absolute_deviation(found["logp_diff_squared"], found["logp_abs_diff/avg"])
    assert deviation == 0.25


def test_the_sign_of_k1_is_of_the_behaviour_to_the_learner() -> None:
    found = exported([-3.0], [-1.0])
    assert (found["logp_diff/avg"], found["kl_k1"]) == (-2.0, 2.0)
    assert exported([-1.0], [-3.0])["kl_k1"] == -2.0


def test_tails_begin_beyond_the_threshold_on_both_sides() -> None:
    two = math.log(2.0)
    # float64 of the test and of the code: exactly the threshold is inside, the next one outside.
    learner = torch.tensor([two, -two, math.nextafter(two, 1.0)], dtype=torch.float64)
    tracker = StatsTracker()
    record_log_probs(
        tracker,
        learner=learner,
        behaviour=torch.zeros(3, dtype=torch.float64),
        mask=torch.ones(3, dtype=torch.bool),
    )
    assert tracker.export()[P + "ratio_outside_2"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["learner", "behaviour"])
def test_a_valid_position_that_is_not_finite_makes_the_tails_nan(bad: float, side: str) -> None:
    sound = [-1.0, -1.0, -1.0, -1.0]
    broken = [-1.0, bad, -1.0, -1.0]
    learner, behaviour = (broken, sound) if side == "learner" else (sound, broken)
    found = exported(learner, behaviour)
    for threshold in ("1.5", "2", "3", "5", "10"):
        assert math.isnan(found[f"ratio_outside_{threshold}"])
    assert found["nonfinite_logp_fraction"] == 0.25
    assert not math.isfinite(found["logp_diff_squared"])
    assert found["kl_k3_overflow_fraction"] == 0.0  # the input was not finite: no overflow


def test_padding_neither_counts_nor_pollutes() -> None:
    valid = [True, True, False, False, False]
    padded = exported(
        [-1.0, -2.0, math.nan, math.inf, 800.0], [-1.5, -1.5, 0.0, -math.inf, -800.0], valid
    )
    assert padded == exported([-1.0, -2.0], [-1.5, -1.5])
    assert padded["nonfinite_logp_fraction"] == 0.0


def test_overflow_of_k3_is_counted_for_finite_differences() -> None:
    # exp(709.7) is below float64's maximum, exp(710) above it.
    found = exported([0.0, 0.0, 0.0, 0.0], [-709.7, -710.0, -2000.0, 710.0])
    assert found["kl_k3_overflow_fraction"] == 0.5
    assert found["kl_k3"] == math.inf
    assert found["nonfinite_logp_fraction"] == 0.0
    assert found["ratio_outside_10"] == 1.0


def test_small_differences_keep_their_digits_in_k3() -> None:
    # d = 2^-20: exp(d) - 1 - d = d^2 / 2 + d^3 / 6, of which float32 would leave nothing.
    d = 2.0**-20
    found = exported([d - 1.0], [-1.0])
    assert found["kl_k3"] == pytest.approx(d * d / 2.0 + d**3 / 6.0, rel=1e-3)


def test_without_a_valid_position_means_are_left_out() -> None:
    assert exported([math.nan], [0.0], [False]) == {"n_valid_tokens": 0.0}


def test_batches_weigh_by_their_positions() -> None:
    tracker = StatsTracker()
    for d, count in ((1.0, 1), (0.0, 3)):
        record_log_probs(
            tracker,
            learner=torch.full((count,), d, requires_grad=True),
            behaviour=torch.zeros(count),
            mask=torch.ones(count, dtype=torch.bool),
        )
    figures = tracker.export()
    assert figures[P + "logp_diff/avg"] == 0.25
    assert figures[P + "ratio_outside_2"] == 0.25


def test_shapes_and_masks_are_checked() -> None:
    tracker = StatsTracker()
    ones = torch.ones(2)
    with pytest.raises(ValueError, match=r"differ in shape: \(2,\), \(3,\), \(2,\)"):
        record_log_probs(
            tracker, learner=ones, behaviour=torch.ones(3), mask=torch.ones(2, dtype=torch.bool)
        )
    with pytest.raises(StatsError, match="must be a bool tensor"):
        record_log_probs(tracker, learner=ones, behaviour=ones, mask=ones)


@pytest.mark.parametrize("squared", [0.25, 0.25 - 1e-17, 0.2])
def test_a_deviation_is_never_of_a_negative_variance(squared: float) -> None:
    assert absolute_deviation(squared, 0.5) == 0.0
