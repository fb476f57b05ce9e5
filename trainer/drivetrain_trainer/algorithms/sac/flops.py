"""Estimated FLOPs of SAC's updates, from the layer sizes of its perceptrons."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from drivetrain_trainer.algorithms.networks import TWINS
from drivetrain_trainer.stats.flops import flops_estimator, register_flops_estimator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivetrain_api.algorithms import SacConfig
    from drivetrain_trainer.stats.flops import FlopsEstimator

MODEL_TYPE: Final = "sac"
_FLOPS_PER_MULTIPLY_ADD: Final = 2
_LEARNING: Final = 3
"""Passes of a network that learns: forward, and a backward one of about twice its work."""
_PASSING: Final = 2
"""Passes of a network that hands a gradient on without learning: forward, and back to its input."""


def sac_flops(
    config: SacConfig, *, observation_dim: int, action_dim: int, critic_outputs: int
) -> FlopsEstimator | None:
    """What is registered for ``sac``: rows of one batch -> FLOPs of an update with them.

    Args:
        config: Sizes of actor and critics.
        observation_dim: Columns of observations.
        action_dim: Columns of actions.
        critic_outputs: Columns of each critic's output.
    """
    return flops_estimator(
        {
            "model_type": MODEL_TYPE,
            "observation_dim": observation_dim,
            "action_dim": action_dim,
            "actor_hidden": config.actor_hidden,
            "critic_hidden": config.critic_hidden,
            "critic_outputs": critic_outputs,
            "policy_frequency": config.policy_frequency,
        }
    )


def make_sac_estimator(model: Any) -> FlopsEstimator:  # noqa: ANN401 - as factories are called
    """FLOPs of the matrix products of an update, linear in its rows.

    With A and C multiply-adds a row of the actor's and both critics' forward pass, an update
    takes ``A + C`` for its targets and ``3 C`` for the critics, and every
    ``policy_frequency``-th one ``3 A + 2 C`` for the actor, on whose way the critics pass a
    gradient on; that part is spread evenly. Left out: activations, normalisation, losses, the
    projection of distributions, optimizers, target averaging, and the collector's inference.

    Args:
        model: Attributes as `sac_flops` names them.
    """
    actor = multiply_adds([model.observation_dim, *model.actor_hidden, 2 * model.action_dim])
    critics = TWINS * multiply_adds(
        [model.observation_dim + model.action_dim, *model.critic_hidden, model.critic_outputs]
    )
    critic_step = actor + critics + _LEARNING * critics
    actor_step = _LEARNING * actor + _PASSING * critics
    per_row = _FLOPS_PER_MULTIPLY_ADD * (critic_step + actor_step / model.policy_frequency)

    def estimate(rows: int) -> float:
        return float(per_row * rows)

    return estimate


def multiply_adds(widths: Sequence[int]) -> int:
    """Of one row's forward pass through linear layers between these widths."""
    return sum(inputs * outputs for inputs, outputs in pairwise(widths))


register_flops_estimator(MODEL_TYPE, make_sac_estimator)
