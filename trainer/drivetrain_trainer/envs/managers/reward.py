"""Rewards: the weighted sum of terms, and each term's mean for the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from drivetrain_trainer.envs.errors import EnvError
from drivetrain_trainer.envs.vector_env import ActiveTerm, ManagerKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_trainer.envs.definition import RewardTerm
    from drivetrain_trainer.envs.state import TermState

RESERVED_NAMES = frozenset({"mean", "mean_ep100"})
"""`reward/<name>` tags that are not terms."""


class RewardManager:
    """Sums ``weight * raw`` over the terms, without a factor of the step's duration."""

    def __init__(self, terms: tuple[RewardTerm, ...], state: TermState) -> None:
        """Check the terms once.

        Raises:
            EnvError: no term, a reserved name, or a term that gives something else than (N,).
        """
        if not terms:
            raise EnvError("an environment needs a reward term")
        for term in terms:
            if term.name in RESERVED_NAMES:
                raise EnvError(f"reward term name {term.name!r} is reserved")
            shape = term.compute(state).shape
            if shape != (state.num_envs,):
                raise EnvError(
                    f"reward term {term.name!r} must give ({state.num_envs},), gave {tuple(shape)}"
                )
        self._terms = terms
        self._state = state
        dtype = state.qpos.dtype
        self._weights = torch.tensor([[term.weight] for term in terms], dtype=dtype)
        self._values = torch.zeros(len(terms), state.num_envs, dtype=dtype)
        self._rows = self._values.unbind(0)
        self._means = torch.zeros(len(terms), dtype=dtype)
        self.log: Mapping[str, Tensor] = {
            f"reward/{term.name}": mean
            for term, mean in zip(terms, self._means.unbind(0), strict=True)
        }
        """Means over all envs of the latest step's weighted values, 0-dim."""

    @property
    def values(self) -> Tensor:
        """(terms, N) the latest step's ``weight * raw``."""
        return self._values

    def compute_into(self, reward: Tensor) -> None:
        """Fill (N,) float32 with the rewards of the latest step."""
        for term, row in zip(self._terms, self._rows, strict=True):
            row.copy_(term.compute(self._state))
        self._values.mul_(self._weights)
        reward.copy_(self._values.sum(0))

    def void(self, worlds: Tensor) -> None:
        """Leave worlds, (N,) bool, out of the values."""
        self._values.masked_fill_(worlds, 0.0)

    def update_log(self) -> None:
        """Take the means of the latest step's values."""
        torch.mean(self._values, dim=1, out=self._means)

    def table(self) -> tuple[ActiveTerm, ...]:
        """The terms and their weights."""
        return tuple(
            ActiveTerm(ManagerKind.REWARD, term.name, weight=term.weight) for term in self._terms
        )
