"""Conditions on the worlds, (N,) bool each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from drivetrain_trainer.envs.definition import Quantity
    from drivetrain_trainer.envs.state import TermState


def outside(column: int, low: float, high: float) -> Quantity:
    """A generalized position is not strictly between `low` and `high`, or is NaN."""

    def compute(state: TermState) -> Tensor:
        value = state.qpos[:, column]
        return ~((value > low) & (value < high))

    return compute


def any_of(*conditions: Quantity) -> Quantity:
    """At least one of several conditions holds."""

    def compute(state: TermState) -> Tensor:
        return torch.stack([condition(state) for condition in conditions]).any(0)

    return compute
