"""Terminations: why episodes end, and how many ended for what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from drivetrain_trainer.envs.errors import EnvError
from drivetrain_trainer.envs.vector_env import ActiveTerm, ManagerKind

if TYPE_CHECKING:
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
        self._names = (*(term.name for term in terms), TIME_OUT)
        self.steps = torch.zeros(state.num_envs, dtype=torch.int64, device=state.device)
        """(N,) steps of the running episodes."""
        shape = (len(self._names), state.num_envs)
        self._fired = torch.zeros(shape, dtype=torch.bool, device=state.device)
        self._rows = self._fired.unbind(0)
        self.terminated = torch.zeros(state.num_envs, dtype=torch.bool, device=state.device)
        """(N,) a term fired in the latest step."""
        self.truncated = self._rows[-1]
        """(N,) out of time in the latest step, and not terminated."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Of `log`."""
        return tuple(f"Episode_Termination/{name}" for name in self._names)

    def compute(self) -> None:
        """Count a step, and fill `terminated` and `truncated`."""
        self.steps += 1
        torch.ge(self.steps, self._episode_length, out=self.truncated)
        if not self._terms:
            return
        for term, row in zip(self._terms, self._rows, strict=False):
            row.copy_(term.compute(self._state))
        torch.any(self._fired[:-1], dim=0, out=self.terminated)
        torch.gt(self.truncated, self.terminated, out=self.truncated)

    def void(self, worlds: Tensor) -> None:
        """Leave worlds, (N,) bool, out of everything."""
        self._fired.masked_fill_(worlds, value=False)
        self.terminated.masked_fill_(worlds, value=False)

    def restart(self, ids: Tensor) -> None:
        """Begin new episodes in worlds (n,) int64."""
        self.steps[ids] = 0

    def log(self) -> dict[str, Tensor]:
        """Episodes that ended in the latest step, by the terms that fired; 0-dim."""
        return dict(zip(self.tags, self._fired.sum(1).unbind(0), strict=True))

    def table(self) -> tuple[ActiveTerm, ...]:
        """The terms, the time limit last."""
        return tuple(ActiveTerm(ManagerKind.TERMINATION, name) for name in self._names)
