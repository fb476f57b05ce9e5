"""Raw values of reward terms, (N,) each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from drivetrain_trainer.envs.definition import Quantity
    from drivetrain_trainer.envs.state import TermState


def coordinate(column: int) -> Quantity:
    """One generalized position."""

    def compute(state: TermState) -> Tensor:
        return state.qpos[:, column]

    return compute


def speed(tracked: str) -> Quantity:
    """Mean velocity over the latest step of a tracked quantity, its unit a second."""

    def compute(state: TermState) -> Tensor:
        return state.change(tracked) / state.step_seconds

    return compute


def squared_action(state: TermState) -> Tensor:
    """Sum of the squared raw action, as the policy gave it."""
    return state.action.to(state.qpos.dtype).square().sum(1)


def squared_control(state: TermState) -> Tensor:
    """Sum of the squared controls, as the simulator holds them."""
    return state.ctrl.square().sum(1)


def while_true(condition: Quantity) -> Quantity:
    """1 where a (N,) bool holds, else 0."""

    def compute(state: TermState) -> Tensor:
        return condition(state).to(state.qpos.dtype)

    return compute


def while_false(condition: Quantity) -> Quantity:
    """1 where a (N,) bool does not hold, else 0."""

    def compute(state: TermState) -> Tensor:
        return torch.logical_not(condition(state)).to(state.qpos.dtype)

    return compute


def always(state: TermState) -> Tensor:
    """1 everywhere."""
    return torch.ones(state.num_envs, dtype=state.qpos.dtype, device=state.qpos.device)


def distance(first: Quantity, second: Quantity) -> Quantity:
    """Euclidean distance of two positions (N, 3), m."""

    def compute(state: TermState) -> Tensor:
        return (first(state) - second(state)).square().sum(1).sqrt()

    return compute
