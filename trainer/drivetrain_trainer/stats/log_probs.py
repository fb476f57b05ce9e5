"""How far the policy that learns is from the one that acted, by the actions' log densities.

With ``d = log p_learner - log p_behaviour`` at a position; a position is a valid transition
(a valid token, where sequences are learnt from). Everything is computed in float64 and kept on
the device; nothing here runs a network or waits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from drivetrain_trainer.stats.reduce_type import ReduceType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from drivetrain_trainer.stats.tracker import StatsTracker

SCOPE: Final = "ppo_actor/train_infer"
POPULATION: Final = "n_valid_tokens"
RATIO_THRESHOLDS: Final = ("1.5", "2", "3", "5", "10")
"""Probability ratios whose tails are counted; the keys hold them as they stand here."""


def record_log_probs(
    tracker: StatsTracker, *, learner: Tensor, behaviour: Tensor, mask: Tensor
) -> None:
    """Record the comparison under ``ppo_actor/train_infer/``.

    To be called once for each batch in which an algorithm recomputes the log densities of
    stored actions: by PPO and APPO at the beginning of an update call, after the learner's
    densities are there and before they replace the behaviour's, with the mask as it is before
    rejection or advantage filters. A run that recomputes nothing does not call it, and has no
    such metrics.

    Args:
        tracker: Takes four figures a metric.
        learner: (...) log density of the stored actions under the policy that learns.
        behaviour: (...) their log density under the policy that chose them.
        mask: (...) bool, the valid positions. What lies outside counts nowhere.

    Raises:
        StatsError: The mask is not bool.
        ValueError: The shapes differ.
    """
    with tracker.scope(SCOPE):
        tracker.denominator(**{POPULATION: mask})
        for name, value, reduce_type in log_prob_figures(learner, behaviour, mask):
            tracker.stat_compact(POPULATION, reduce_type, **{name: value})


@torch.no_grad()
def log_prob_figures(
    learner: Tensor, behaviour: Tensor, mask: Tensor
) -> Iterator[tuple[str, Tensor, ReduceType]]:
    """Each metric by position, float64 (...), one at a time so that few are alive at once.

    A position that is not finite on either side makes the means over it not finite. The tails
    of the ratio compare, and a comparison with NaN would count as inside; so one such valid
    position makes all of them NaN.

    Args:
        learner: As in `record_log_probs`.
        behaviour: Likewise.
        mask: Likewise.

    Yields:
        Name, values by position (undefined outside the mask), reduction.
    """
    if not learner.shape == behaviour.shape == mask.shape:
        shapes = ", ".join(str(tuple(part.shape)) for part in (learner, behaviour, mask))
        raise ValueError(f"log densities of learner, behaviour, and mask differ in shape: {shapes}")
    learner, behaviour = learner.detach().double(), behaviour.detach().double()
    difference = learner - behaviour
    distance = difference.abs()
    finite = learner.isfinite() & behaviour.isfinite()
    yield "logp_diff", difference, ReduceType.AVG_MIN_MAX
    yield "logp_abs_diff", distance, ReduceType.AVG_MIN_MAX
    yield "logp_diff_squared", difference.square(), ReduceType.AVG
    yield "trainer_nll", -learner, ReduceType.AVG
    yield "rollout_nll", -behaviour, ReduceType.AVG
    yield "kl_k1", -difference, ReduceType.AVG
    yield "kl_k2", difference.square() / 2.0, ReduceType.AVG
    growth = torch.expm1(difference)
    yield "kl_k3", growth - difference, ReduceType.AVG
    broken = (~finite & mask).any()
    for threshold in RATIO_THRESHOLDS:
        outside = (distance > math.log(float(threshold))).double()
        tail = torch.where(broken, math.nan, outside)
        yield f"ratio_outside_{threshold}", tail, ReduceType.AVG
    yield "nonfinite_logp_fraction", (~finite).double(), ReduceType.AVG
    overflow = (finite & growth.isinf()).double()
    yield "kl_k3_overflow_fraction", overflow, ReduceType.AVG


def absolute_deviation(mean_squared: float, mean_absolute: float) -> float:
    """Standard deviation of the absolute difference, from two aggregated means.

    Population deviation, ``sqrt(max(0, E[d^2] - E[abs(d)]^2))``; rounding can take the
    difference below zero.

    Args:
        mean_squared: ``logp_diff_squared``.
        mean_absolute: ``logp_abs_diff/avg``.
    """
    return math.sqrt(max(0.0, mean_squared - mean_absolute * mean_absolute))
