"""What twin critics regress to, and what the actor climbs: plain Q values or distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch.nn.functional import mse_loss

from drivetrain_api.algorithms import CriticKind
from drivetrain_trainer.algorithms.c51 import Support, cross_entropy

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_api.algorithms import SacConfig


class CriticObjective(Protocol):
    """How outputs of twin critics turn into targets, losses and values."""

    outputs: int
    """Columns of each critic's output."""

    def target(
        self, outputs: Tensor, *, reward: Tensor, discount: Tensor, entropy_cost: Tensor
    ) -> Tensor:
        """What both critics regress to.

        Args:
            outputs: Of the target critics at the next state and a fresh action.
            reward: (B,).
            discount: (B,), gamma times the bootstrap weight: 0 after a termination.
            entropy_cost: (B,), alpha times the fresh action's log density.
        """

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """0-dim: summed over the twins, averaged over the batch."""

    def policy_value(self, outputs: Tensor) -> Tensor:
        """(B,) what the actor climbs."""

    def target_values(self, target: Tensor) -> Tensor:
        """The expected returns in `target`, of any shape."""


class TwinQ:
    """Clipped double Q-learning (Fujimoto et al., arXiv:1802.09477): the twins' minimum."""

    outputs = 1

    def target(
        self, outputs: Tensor, *, reward: Tensor, discount: Tensor, entropy_cost: Tensor
    ) -> Tensor:
        """(B,): reward + discount * (min of the twins - entropy cost)."""
        return torch.addcmul(reward, discount, self.policy_value(outputs) - entropy_cost)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Mean squared error of (2, B) against (B,)."""
        error = mse_loss(outputs, target.expand_as(outputs), reduction="sum")
        return error / target.shape[0]

    def policy_value(self, outputs: Tensor) -> Tensor:
        """The smaller of the twins' values (2, B)."""
        return outputs.min(dim=0).values

    def target_values(self, target: Tensor) -> Tensor:
        """The targets themselves."""
        return target


class TwinC51:
    """Twin categorical critics as in FastSAC: averages, no minimum.

    Each critic regresses to the projected distribution of its own target critic, and the
    actor climbs the mean of the twins' expectations. Seo et al., "Learning sim-to-real
    humanoid locomotion in 15 minutes", arXiv:2512.01996: with layer normalisation the
    minimum hurts.
    """

    def __init__(self, config: SacConfig, device: torch.device) -> None:
        self.outputs = config.num_atoms
        self._support = Support(config.num_atoms, config.v_min, config.v_max, device)

    def target(
        self, outputs: Tensor, *, reward: Tensor, discount: Tensor, entropy_cost: Tensor
    ) -> Tensor:
        """(2, B, atoms): each target critic's distribution, shifted and projected."""
        shift = torch.addcmul(reward, discount, entropy_cost, value=-1.0)
        return self._support.project(outputs.softmax(dim=-1), shift, discount)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy of logits (2, B, atoms) against distributions of that shape."""
        return cross_entropy(outputs, target).sum() / target.shape[1]

    def policy_value(self, outputs: Tensor) -> Tensor:
        """The mean of the twins' expectations, of logits (2, B, atoms)."""
        return self._support.expectation(outputs.softmax(dim=-1)).mean(dim=0)

    def target_values(self, target: Tensor) -> Tensor:
        """(2, B) expectations."""
        return self._support.expectation(target)


def make_objective(config: SacConfig, device: torch.device) -> CriticObjective:
    """The objective that `algo.critic` names."""
    return TwinC51(config, device) if config.critic is CriticKind.C51 else TwinQ()
