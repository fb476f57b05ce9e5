"""Observation terms, (N, k) each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from drivetrain_trainer.envs.definition import Quantity
    from drivetrain_trainer.envs.state import TermState


def positions(first: int = 0, last: int | None = None) -> Quantity:
    """Generalized positions, columns `first` to before `last`."""

    def compute(state: TermState) -> Tensor:
        return state.qpos[:, first:last]

    return compute


def velocities(first: int = 0, last: int | None = None, *, limit: float | None = None) -> Quantity:
    """Generalized velocities, columns `first` to before `last`, clipped to +-`limit`."""

    def compute(state: TermState) -> Tensor:
        columns = state.qvel[:, first:last]
        return columns if limit is None else columns.clamp(-limit, limit)

    return compute


def output(name: str, first: int = 0, *, limit: float | None = None) -> Quantity:
    """A derived field from its row `first` on, flattened, clipped to +-`limit`."""

    def compute(state: TermState) -> Tensor:
        rows = state.output(name)[:, first:].flatten(1)
        return rows if limit is None else rows.clamp(-limit, limit)

    return compute


def body_position(name: str) -> Quantity:
    """World position of a body's frame, m, (N, 3); needs the output ``xpos``."""

    def compute(state: TermState) -> Tensor:
        return state.output("xpos")[:, state.model.body(name)]

    return compute
