"""The actor, a tanh-squashed Gaussian, and the policy that play and export use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import hardtanh, softplus

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
        return mean, hardtanh(log_std, LOG_STD_MIN, LOG_STD_MAX)


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


class Sample(NamedTuple):
    """An action drawn from the policy."""

    action: Tensor
    """(..., a) in [-1, 1]."""
    log_prob: Tensor
    """(...) log density under the squashed distribution."""
    std: Tensor
    """(..., a) deviation before squashing."""


def squash(mean: Tensor, log_std: Tensor, noise: Tensor) -> Sample:
    """An action drawn by reparametrisation, and its log density.

    With u = mean + std * noise and action tanh(u), the density's correction is
    log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), which is exact where tanh saturates.
    What follows is in the order of the fewest operations.

    Args:
        mean: (..., a).
        log_std: (..., a).
        noise: (..., a) standard normal.
    """
    std = log_std.exp()
    unsquashed = torch.addcmul(mean, std, noise)
    stretch = unsquashed + softplus(-2.0 * unsquashed)
    surprise = torch.addcmul(log_std.sub(stretch, alpha=2), noise, noise, value=0.5)
    log_prob = -noise.shape[-1] * _LOG_DENSITY_CONSTANT - surprise.sum(-1)
    return Sample(torch.tanh(unsquashed), log_prob, std)
