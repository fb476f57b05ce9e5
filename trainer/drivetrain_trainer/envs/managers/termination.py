"""Terminations: why episodes end, and how many ended for what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from drivetrain_trainer.envs.errors import EnvError
from drivetrain_trainer.envs.vector_env import ActiveTerm, ManagerKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_trainer.envs.definition import TerminationTerm
    from drivetrain_trainer.envs.state import TermState

TIME_OUT = "time_out"
"""The name under which episodes that ran out of time are counted."""


class TerminationManager:
    """Evaluates the terms, counts steps, and truncates episodes that are out of time."""

    def __init__(
        self, terms: tuple[TerminationTerm, ...], state: TermState, episode_length: int
    ) -> None:
        """Check the terms once.

        Raises:
            EnvError: a reserved name, or a term that does not give (N,) bool.
        """
        if episode_length < 1:
            raise EnvError(f"episode_length must be at least 1, got {episode_length}")
        for term in terms:
            value = term.compute(state)
            if term.name == TIME_OUT:
                raise EnvError(f"termination term name {TIME_OUT!r} is reserved")
            if value.shape != (state.num_envs,) or value.dtype != torch.bool:
                raise EnvError(
                    f"termination term {term.name!r} must give ({state.num_envs},) bool, gave"
                    f" {tuple(value.shape)} {value.dtype}"
                )
        self._terms = terms
        self._state = state
        self._episode_length = episode_length
        self._steps = torch.zeros(state.num_envs, dtype=torch.int64)
        self._fired = torch.zeros(len(terms) + 1, state.num_envs, dtype=torch.bool)
        self._counts = torch.zeros(len(terms) + 1)
        names = (*(term.name for term in terms), TIME_OUT)
        self.log: Mapping[str, Tensor] = {
            f"Episode_Termination/{name}": count
            for name, count in zip(names, self._counts.unbind(0), strict=True)
        }
        """Episodes that ended in the latest step, by the terms that fired; 0-dim."""

    @property
    def steps(self) -> Tensor:
        """(N,) int64 steps of the running episodes."""
        return self._steps

    def compute_into(self, terminated: Tensor, truncated: Tensor) -> None:
        """Fill two (N,) bool; an episode that is both terminal and out of time is terminated."""
        self._steps += 1
        for term, row in zip(self._terms, self._fired, strict=False):
            row.copy_(term.compute(self._state))
        torch.any(self._fired[:-1], dim=0, out=terminated)
        torch.ge(self._steps, self._episode_length, out=truncated)
        truncated.logical_and_(~terminated)
        self._fired[-1] = truncated

    def void(self, worlds: Tensor) -> None:
        """Leave worlds, (N,) bool, out of the counts."""
        self._fired.masked_fill_(worlds, value=False)

    def restart(self, ids: Tensor) -> None:
        """Begin new episodes in worlds (n,) int64."""
        self._steps[ids] = 0

    def update_log(self) -> None:
        """Count the episodes that ended in the latest step."""
        self._counts.copy_(self._fired.sum(1))

    def table(self) -> tuple[ActiveTerm, ...]:
        """The terms, the time limit last."""
        names = (*(term.name for term in self._terms), TIME_OUT)
        return tuple(ActiveTerm(ManagerKind.TERMINATION, name) for name in names)
