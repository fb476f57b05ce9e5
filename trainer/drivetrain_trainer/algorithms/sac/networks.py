"""The actor, a tanh-squashed Gaussian, and the policy that play and export use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from drivetrain_trainer.algorithms.networks import TwinMlp, hidden_layers
from drivetrain_trainer.algorithms.normalization import ObservationNormalizer

if TYPE_CHECKING:
    from drivetrain_api.algorithms import SacConfig

LOG_STD_MIN: Final = -20.0
LOG_STD_MAX: Final = 2.0
_LOG_DENSITY_CONSTANT: Final = 0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)


class Actor(nn.Module):
    """(..., o) normalised observations -> mean and log deviation, each (..., a) float32.

    The Gaussian lies before the tanh that squashes it into [-1, 1].
    """

    def __init__(self, config: SacConfig, observation_dim: int, action_dim: int) -> None:
        super().__init__()
        self.trunk = hidden_layers(
            observation_dim,
            config.actor_hidden,
            activation=config.activation,
            layer_norm=config.layer_norm,
        )
        self.head = nn.Linear(config.actor_hidden[-1], 2 * action_dim)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and clamped log deviation."""
        outputs: Tensor = self.head(self.trunk(observation))
        mean, log_std = outputs.float().chunk(2, dim=-1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)


class Policy(nn.Module):
    """(..., o) raw float32 observations -> (..., a) deterministic actions in [-1, 1]."""

    def __init__(self, config: SacConfig, observation_dim: int, action_dim: int) -> None:
        super().__init__()
        self.normalizer = (
            ObservationNormalizer(observation_dim)
            if config.observation_normalization
            else nn.Identity()
        )
        self.actor = Actor(config, observation_dim, action_dim)

    def forward(self, observation: Tensor) -> Tensor:
        """The mode of the Gaussian, squashed."""
        mean, _ = self.actor(self.normalizer(observation))
        return torch.tanh(mean)


def make_critic(
    config: SacConfig, observation_dim: int, action_dim: int, *, outputs: int
) -> TwinMlp:
    """Twin critics (B, o + a) -> (2, B), or (2, B, outputs) for more than one output."""
    return TwinMlp(
        observation_dim + action_dim,
        config.critic_hidden,
        outputs,
        activation=config.activation,
        layer_norm=config.layer_norm,
    )


def squash(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """An action drawn by reparametrisation, and its log density.

    With u = mean + std * noise and action tanh(u), the density's correction is
    log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), which is exact where tanh saturates.

    Args:
        mean: (..., a).
        log_std: (..., a).
        noise: (..., a) standard normal.

    Returns:
        Action (..., a) in [-1, 1], log density (...) under the squashed distribution.
    """
    unsquashed = torch.addcmul(mean, log_std.exp(), noise)
    # Without gradient: the Gaussian's exponent, and all constants of both densities.
    fixed = noise.square().sum(-1).mul_(-0.5).sub_(noise.shape[-1] * _LOG_DENSITY_CONSTANT)
    stretch = unsquashed + softplus(-2.0 * unsquashed)
    log_prob = (2.0 * stretch - log_std).sum(-1) + fixed
    return torch.tanh(unsquashed), log_prob
