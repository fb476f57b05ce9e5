"""Rewards: the weighted sum of terms, and each term's mean for the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from drivetrain_trainer.envs.errors import EnvError
from drivetrain_trainer.envs.soundness import UnsoundElement, unsound_positions
from drivetrain_trainer.envs.vector_env import ActiveTerm, ManagerKind

if TYPE_CHECKING:
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
        dtype, device = state.qpos.dtype, state.device
        self._weights = torch.tensor([t.weight for t in terms], dtype=dtype, device=device)
        self._raw = torch.zeros(len(terms), state.num_envs, dtype=dtype, device=device)
        self._rows = self._raw.unbind(0)
        self._total = torch.zeros(state.num_envs, dtype=dtype, device=device)

    @property
    def tags(self) -> tuple[str, ...]:
        """Of `log`."""
        return tuple(f"reward/{term.name}" for term in self._terms)

    def compute_into(self, reward: Tensor) -> None:
        """Fill (N,) float32 with the rewards of the latest step."""
        for term, row in zip(self._terms, self._rows, strict=True):
            row.copy_(term.compute(self._state))
        torch.mv(self._raw.t(), self._weights, out=self._total)
        reward.copy_(self._total)

    def values(self) -> Tensor:
        """(terms, N) ``weight * raw`` of the latest step."""
        return self._raw * self._weights[:, None]

    def unsound(self, worlds: Tensor) -> list[UnsoundElement]:
        """Terms whose weighted values are no sound numbers in `worlds`, (N,) bool, in this step.

        The first few; where every term is sound, but not their sum, that is told.
        """
        ids = worlds.nonzero().squeeze(1)
        values = self.values().t()[ids]
        return [
            UnsoundElement(
                env=int(ids[row]),
                place=f"reward term {self._terms[column].name!r}",
                value=float(values[row, column]),
            )
            for row, column in unsound_positions(values)
        ] or [UnsoundElement(int(ids[0]), "sum of the reward terms", float(self._total[ids[0]]))]

    def void(self, worlds: Tensor) -> None:
        """Leave worlds, (N,) bool, out of the log."""
        self._raw.masked_fill_(worlds, 0.0)

    def log(self) -> dict[str, Tensor]:
        """Mean over all envs of each term's ``weight * raw`` in the latest step, 0-dim."""
        return dict(zip(self.tags, self.values().mean(1).unbind(0), strict=True))

    def table(self) -> tuple[ActiveTerm, ...]:
        """The terms and their weights."""
        return tuple(
            ActiveTerm(ManagerKind.REWARD, term.name, weight=term.weight) for term in self._terms
        )
