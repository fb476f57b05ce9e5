"""Signs of the advantages that a policy learns from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from drivetrain_trainer.stats.reduce_type import ReduceType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from drivetrain_trainer.stats.tracker import StatsTracker

SCOPE: Final = "ppo_actor"
POPULATION: Final = "n_advantages"


def record_advantage_signs(tracker: StatsTracker, advantages: Tensor, mask: Tensor) -> None:
    """Record ``ppo_actor/advantage_{positive,negative,zero}_fraction``.

    To be called by PPO and APPO once an update call, with the advantages as they enter it
    (after shaping and normalisation) and the batch's loss mask, before anything is rejected or
    filtered. They are shares of positions: neither a rate of success nor the sign of a
    gradient.

    Args:
        tracker: Takes four figures a metric.
        advantages: (...) one a position.
        mask: (...) bool, the valid positions.

    Raises:
        StatsError: The shapes differ, or the mask is not bool.
    """
    with tracker.scope(SCOPE):
        tracker.denominator(**{POPULATION: mask})
        tracker.stat_compact(POPULATION, ReduceType.AVG, **advantage_signs(advantages))


@torch.no_grad()
def advantage_signs(advantages: Tensor) -> Mapping[str, Tensor]:
    """Float32 (...) by metric: 1 where an advantage has that sign.

    A NaN has none of the three, so that shares which add up to less than 1 tell of it.
    """
    return {
        "advantage_positive_fraction": (advantages > 0).float(),
        "advantage_negative_fraction": (advantages < 0).float(),
        "advantage_zero_fraction": (advantages == 0).float(),
    }
