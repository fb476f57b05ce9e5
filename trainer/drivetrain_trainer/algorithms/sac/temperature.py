"""The entropy temperature and its own optimizer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from drivetrain_trainer.algorithms.optimizer import VectorAdamW

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_api.algorithms import SacConfig


class Temperature:
    """alpha = exp(log alpha), moved so that the policy's entropy meets its target.

    Args:
        config: Start, learning rate, whether it learns, and the target's scale.
        action_dim: The target entropy is minus the scale times this.
        gradient: 0-dim float32 that this writes and its optimizer reads.

    Attributes:
        log_alpha: 0-dim float32.
        target_entropy: Nats.
    """

    def __init__(self, config: SacConfig, *, action_dim: int, gradient: Tensor) -> None:
        self.log_alpha = torch.full((), math.log(config.alpha_init), device=gradient.device)
        self.target_entropy = -config.target_entropy_scale * action_dim
        self._learns = config.alpha_autotune
        self._gradient = gradient
        self.optimizer = VectorAdamW(
            self.log_alpha,
            gradient,
            learning_rate=config.alpha_learning_rate,
            betas=config.adam_betas,
        )

    def value(self) -> Tensor:
        """Alpha, 0-dim, outside of every graph."""
        return self.log_alpha.exp()

    def loss(self, mean_log_prob: Tensor) -> Tensor:
        """Write this rank's gradient, and return the loss (0-dim) that it is of.

        The loss is -log alpha * (E[log pi] + target entropy): its gradient by log alpha
        needs no graph and does not vanish with alpha.

        Args:
            mean_log_prob: 0-dim, without a graph.
        """
        excess = mean_log_prob + self.target_entropy
        torch.neg(excess, out=self._gradient)
        return -self.log_alpha * excess

    def step(self, *, skip: Tensor, divisor: Tensor | None) -> None:
        """One optimizer step on the reduced gradient; none where alpha is fixed."""
        if self._learns:
            self.optimizer.step(skip=skip, divisor=divisor)
