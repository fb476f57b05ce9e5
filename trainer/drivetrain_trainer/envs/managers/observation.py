"""Observations: the columns that terms give, side by side in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from drivetrain_trainer.envs.errors import EnvError
from drivetrain_trainer.envs.vector_env import ActiveTerm, ManagerKind

if TYPE_CHECKING:
    from drivetrain_trainer.envs.definition import ObservationTerm
    from drivetrain_trainer.envs.state import TermState


class ObservationManager:
    """Computes terms in the backend's precision and casts them at the end."""

    def __init__(self, terms: tuple[ObservationTerm, ...], state: TermState) -> None:
        """Compute each term once, for its size.

        Raises:
            EnvError: a term gives something else than (N, k).
        """
        if not terms:
            raise EnvError("an environment needs an observation term")
        self._terms = terms
        self._state = state
        self._sizes: list[int] = []
        for term in terms:
            shape = term.compute(state).shape
            if len(shape) != 2 or shape[0] != state.num_envs:  # noqa: PLR2004  # rows, columns
                raise EnvError(
                    f"observation term {term.name!r} must give ({state.num_envs}, k), gave"
                    f" {tuple(shape)}"
                )
            self._sizes.append(shape[1])

    @property
    def size(self) -> int:
        """Columns of the observation."""
        return sum(self._sizes)

    def place(self, column: int) -> str:
        """The term that a column of the observation is of, in words."""
        for term, size in zip(self._terms, self._sizes, strict=True):
            if column < size:
                return f"observation term {term.name!r} column {column}"
            column -= size
        raise EnvError(f"the observation has {self.size} columns, none of number {column}")

    def make_buffer(self) -> Tensor:
        """(N, o) float32, NaN until computed."""
        shape = (self._state.num_envs, self.size)
        return torch.full(shape, torch.nan, device=self._state.device)

    def columns(self, buffer: Tensor) -> tuple[Tensor, ...]:
        """Each term's part of (N, o), as views."""
        return torch.split(buffer, self._sizes, dim=1)

    def compute_into(self, columns: tuple[Tensor, ...]) -> None:
        """Fill the `columns` of a buffer from the worlds as they are."""
        for term, part in zip(self._terms, columns, strict=True):
            part.copy_(term.compute(self._state))

    def table(self) -> tuple[ActiveTerm, ...]:
        """The terms and their sizes."""
        return tuple(
            ActiveTerm(ManagerKind.OBSERVATION, term.name, size=size)
            for term, size in zip(self._terms, self._sizes, strict=True)
        )
