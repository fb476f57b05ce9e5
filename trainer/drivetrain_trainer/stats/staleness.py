"""How many published versions old the policy was that made what an update learns from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from drivetrain_trainer.stats.moments import masked_moments
from drivetrain_trainer.stats.reduce_type import ReduceType

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.stats.tracker import StatsTracker

NO_VERSION: Final = -1
"""Behaviour version of what no policy chose, such as random warm-up actions; never counted."""

_LEAF: Final = "update/version_stats"
FAMILIES: Final = ("theta", "proximal")
"""The policy that learns and the one that ratios are taken to: both are published together."""
_EXTREMES: Final = (
    ("avg", ReduceType.AVG),
    ("min", ReduceType.MIN),
    ("max", ReduceType.MAX),
)


def record_staleness(
    tracker: StatsTracker,
    *,
    behaviour_version: Tensor,
    published_version: int,
    mask: Tensor | None = None,
    actor: str = "ppo_actor",
) -> None:
    """Record ``<actor>/update/version_stats/...`` of the positions that one update call sees.

    To be called once an update call, before filters, however many minibatches and passes the
    call makes: by PPO and APPO at its beginning with ``actor="ppo_actor"``, by SAC with
    ``actor="sac_actor"`` on the rows sampled for the update before a report. What is learnt
    from again in a later call counts there again.

    A position counts where the mask is set and its version is at least 0. Without any, means
    and extremes are left out of the export rather than zero. Actor and behaviour policy go up
    together, a version an update call, so both families age against the version published
    last; optimizer steps within a call do not count.

    Args:
        tracker: Takes four figures a metric.
        behaviour_version: (...) integers, the version that chose each position's action;
            `NO_VERSION` for none. Where they are stored a position late, as tokens are, shift
            them first (`shift_to_predicted`).
        published_version: The version published last.
        mask: (...) bool, the valid positions; None for all.
        actor: First part of the keys.

    Raises:
        ValueError: The shapes differ, versions are no integers, or the mask is not bool.
    """
    _check(behaviour_version, mask)
    counted = behaviour_version >= 0
    if mask is not None:
        counted = counted & mask
    age = published_version - behaviour_version
    ages = masked_moments(age, counted)
    with tracker.scope(f"{actor}/{_LEAF}"):
        for name, reduce_type in _EXTREMES:
            keys = (f"sample_staleness_{family}_{name}" for family in FAMILIES)
            tracker.stat_figures(reduce_type, **dict.fromkeys(keys, ages))
        stale, future, valid = _shares((age > 0, age < 0, counted), counted, ages[1])
        tracker.stat_figures(
            ReduceType.AVG, stale_token_fraction=stale, future_token_fraction=future
        )
        tracker.stat_figures(ReduceType.SUM, n_valid_generated_tokens=valid)


def _shares(flags: tuple[Tensor, ...], counted: Tensor, count: Tensor) -> Tensor:
    """Figures of several flags at once, one a row; a mean or a sum reads no extremes."""
    figures = torch.empty(len(flags), 4, dtype=torch.float64, device=counted.device)
    figures[:, 0] = torch.stack(flags).logical_and_(counted).flatten(1).sum(1)
    figures[:, 1] = count
    figures[:, 2] = math.inf
    figures[:, 3] = -math.inf
    return figures


def shift_to_predicted(versions: Tensor) -> Tensor:
    """Versions of the tokens (..., L), moved to the positions that predict them.

    Position t predicts token t + 1, whose version is therefore t's; the last position predicts
    nothing and gets `NO_VERSION`. A copy: what a loss reads stays where it is.
    """
    shifted = torch.full_like(versions, NO_VERSION)
    shifted[..., :-1] = versions[..., 1:]
    return shifted


def _check(versions: Tensor, mask: Tensor | None) -> None:
    if versions.is_floating_point() or versions.dtype is torch.bool:
        raise ValueError(f"behaviour versions of {versions.dtype}: must be integers")
    if mask is not None and mask.dtype is not torch.bool:
        raise ValueError(f"mask of {mask.dtype}: must be bool")
    if mask is not None and mask.shape != versions.shape:
        raise ValueError(
            f"behaviour versions of shape {tuple(versions.shape)}, mask of {tuple(mask.shape)}"
        )
