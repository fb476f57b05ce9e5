"""A transition as one packed row, and a batch as named views of packed rows.

Row of width ``2 o + a + 3``::

    [observation o | action a | reward | done | truncated | next_observation o]

`done` is terminated or truncated. `next_observation` is the terminal observation on an
episode's last row, so that a truncated episode bootstraps from where it was cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Views of packed rows with any leading dimensions ``(..., W)``; float32 throughout.

    Valid until the buffer under it is filled again.
    """

    observation: Tensor
    """(..., o)."""
    action: Tensor
    """(..., a), normalised."""
    reward: Tensor
    """(...)."""
    done: Tensor
    """(...), 1 on an episode's last row, else 0."""
    truncated: Tensor
    """(...), 1 where the episode was cut rather than ended, else 0."""
    next_observation: Tensor
    """(..., o); the terminal observation where `done`."""

    @property
    def bootstrap(self) -> Tensor:
        """Weight of the next state's value (...): ``clamp(1 - done + truncated, 0, 1)``."""
        return torch.clamp(1.0 - self.done + self.truncated, 0.0, 1.0)


@dataclass(frozen=True)
class RowLayout:
    """Columns of a packed row."""

    observation_dim: int
    action_dim: int

    def __post_init__(self) -> None:
        for name, value in (("observation", self.observation_dim), ("action", self.action_dim)):
            if value < 1:
                raise ValueError(f"{name} dimension {value}: at least 1")

    @property
    def width(self) -> int:
        """Floats of a row."""
        return 2 * self.observation_dim + self.action_dim + 3

    def view(self, rows: Tensor) -> Batch:
        """Named views of rows (..., W)."""
        if rows.shape[-1] != self.width:
            raise ValueError(f"rows of width {rows.shape[-1]}: the layout's is {self.width}")
        scalars = self.observation_dim + self.action_dim
        return Batch(
            observation=rows[..., : self.observation_dim],
            action=rows[..., self.observation_dim : scalars],
            reward=rows[..., scalars],
            done=rows[..., scalars + 1],
            truncated=rows[..., scalars + 2],
            next_observation=rows[..., scalars + 3 :],
        )

    def pack(
        self,
        rows: Tensor,
        *,
        observation: Tensor,
        action: Tensor,
        reward: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        next_observation: Tensor,
    ) -> None:
        """Write transitions into `rows` (n, W).

        Args:
            rows: overwritten, every column of it.
            observation: (n, o) what the action was chosen for.
            action: (n, a).
            reward: (n,).
            terminated: (n,) bool.
            truncated: (n,) bool.
            next_observation: (n, o) terminal observations included.
        """
        into = self.view(rows)
        into.observation.copy_(observation)
        into.action.copy_(action)
        into.reward.copy_(reward)
        into.done.copy_(terminated | truncated)
        into.truncated.copy_(truncated)
        into.next_observation.copy_(next_observation)
