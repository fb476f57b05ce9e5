"""Categorical value distributions: support, expectation, projection, loss.

Bellemare, Dabney, Munos: "A distributional perspective on reinforcement learning",
arXiv:1707.06887, algorithm 1.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Support:
    """Evenly spaced atoms that returns are spread over.

    Args:
        num_atoms: At least 2.
        v_min: Lowest atom.
        v_max: Highest atom.
        device: Where `atoms` (num_atoms,) float32 lies.

    Raises:
        ValueError: fewer than two atoms, or an empty range.
    """

    def __init__(self, num_atoms: int, v_min: float, v_max: float, device: torch.device) -> None:
        if num_atoms < 2:  # noqa: PLR2004 — both ends of the range
            raise ValueError(f"num_atoms {num_atoms}: at least 2")
        if not v_min < v_max:
            raise ValueError(f"v_min {v_min} must lie below v_max {v_max}")
        self.v_min = v_min
        self.num_atoms = num_atoms
        self.spacing = (v_max - v_min) / (num_atoms - 1)
        self.atoms = torch.linspace(v_min, v_max, num_atoms, device=device)

    def expectation(self, probabilities: Tensor) -> Tensor:
        """Mean (...) of distributions (..., num_atoms)."""
        return probabilities @ self.atoms

    def project(self, probabilities: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        """The distribution of ``reward + discount * Z``, spread back over the atoms.

        Each shifted atom's mass goes to its two neighbours in proportion to nearness; what
        falls outside goes to the end atoms.

        Args:
            probabilities: (..., B, num_atoms) of Z; all leading dimensions share the shift.
            reward: (B,).
            discount: (B,), 0 where nothing follows.

        Returns:
            (..., B, num_atoms). Rows of a non-finite reward or discount are NaN, so that
            they show in the loss.
        """
        last = self.num_atoms - 1
        shifted = torch.addcmul(reward.unsqueeze(-1), discount.unsqueeze(-1), self.atoms)
        position = ((shifted - self.v_min) / self.spacing).clamp(0.0, float(last))
        # NaN as an index would be undefined; the share above keeps it.
        lower = position.nan_to_num(0.0).floor().clamp(max=last - 1)
        # A reward of infinity would end up as plain mass on an end atom: 0 * inf is NaN too.
        above = position - lower + (reward * 0.0).unsqueeze(-1)
        index = lower.long().expand(probabilities.shape)
        projected = torch.zeros_like(probabilities)
        projected.scatter_add_(-1, index, probabilities * (1.0 - above))
        projected.scatter_add_(-1, index + 1, probabilities * above)
        return projected


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy (...) of `logits` (..., num_atoms) against distributions `target`."""
    return -(target * torch.log_softmax(logits, dim=-1)).sum(-1)
