"""Changes of the states that worlds are reset to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from drivetrain_trainer.envs.errors import EnvError

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_trainer.envs.definition import ResetDraft
    from drivetrain_trainer.envs.rng import ManagerRng

_ROUNDS = 10_000


def add_uniform_positions(scale: float) -> Callable[[ResetDraft, ManagerRng], None]:
    """Add noise of [-scale, scale) to every generalized position."""

    def apply(draft: ResetDraft, rng: ManagerRng) -> None:
        draft.qpos += rng.uniform(tuple(draft.qpos.shape), -scale, scale, dtype=draft.qpos.dtype)

    return apply


def add_uniform_velocities(scale: float) -> Callable[[ResetDraft, ManagerRng], None]:
    """Add noise of [-scale, scale) to every generalized velocity."""

    def apply(draft: ResetDraft, rng: ManagerRng) -> None:
        draft.qvel += rng.uniform(tuple(draft.qvel.shape), -scale, scale, dtype=draft.qvel.dtype)

    return apply


def add_normal_velocities(scale: float) -> Callable[[ResetDraft, ManagerRng], None]:
    """Add normal noise of deviation `scale` to every generalized velocity."""

    def apply(draft: ResetDraft, rng: ManagerRng) -> None:
        draft.qvel += rng.normal(tuple(draft.qvel.shape), std=scale, dtype=draft.qvel.dtype)

    return apply


def sample_until(
    count: int, sample: Callable[[int], Tensor], accept: Callable[[Tensor], Tensor]
) -> Tensor:
    """Rejection sampling: redraw the rows that are not accepted until all are.

    Args:
        count: Rows wanted.
        sample: Draws that many rows, (n, k).
        accept: (n,) bool of (n, k).

    Raises:
        EnvError: some row was refused 10,000 times over.
    """
    rows = sample(count)
    for _ in range(_ROUNDS):
        refused = (~accept(rows)).nonzero().squeeze(1)
        if not len(refused):
            return rows
        rows = torch.index_copy(rows, 0, refused, sample(len(refused)))
    raise EnvError(f"no sample was accepted in {_ROUNDS} rounds")
