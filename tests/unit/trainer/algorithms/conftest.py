"""Agents small enough for a test, and rows to feed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from drivetrain_api.algorithms import Activation, CriticKind, Precision, SacConfig
from drivetrain_trainer.algorithms.sac.agent import SacAgent
from drivetrain_trainer.runtime.replay_layout import Batch, RowLayout

OBSERVATIONS, ACTIONS = 5, 2


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def support() -> Path:
    return Path(__file__).parent / "support"


@pytest.fixture
def make_config() -> Callable[..., SacConfig]:
    def make(**changes: Any) -> SacConfig:
        small: dict[str, Any] = {
            "actor_hidden": (16, 16),
            "critic_hidden": (16, 16),
            "activation": Activation.RELU,
            "layer_norm": False,
            "critic": CriticKind.TWIN_Q,
            "policy_frequency": 1,
            "observation_normalization": False,
            "precision": Precision.FP32,
            "weight_decay": 0.0,
            "gamma": 0.9,
            "tau": 0.05,
            "num_atoms": 11,
            "v_min": -5.0,
            "v_max": 5.0,
        }
        return SacConfig(**{**small, **changes})

    return make


@pytest.fixture
def make_agent(make_config: Callable[..., SacConfig]) -> Callable[..., SacAgent]:
    def make(*, seed: int = 0, **changes: Any) -> SacAgent:
        return SacAgent(
            make_config(**changes),
            observation_dim=OBSERVATIONS,
            action_dim=ACTIONS,
            device=torch.device("cpu"),
            seed=seed,
        )

    return make


@pytest.fixture
def make_rows() -> Callable[..., torch.Tensor]:
    """Packed rows (U, B, W) with a few terminations and truncations among them."""

    def make(*, seed: int = 0, updates: int = 1, batch: int = 32) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        layout = RowLayout(OBSERVATIONS, ACTIONS)
        rows = torch.randn(updates, batch, layout.width, generator=generator)
        views = layout.view(rows)
        views.action.tanh_()
        views.done.copy_(torch.rand(updates, batch, generator=generator) < 0.3)
        views.truncated.copy_(views.done * (torch.rand(updates, batch, generator=generator) < 0.5))
        return rows

    return make


@pytest.fixture
def make_batch(make_rows: Callable[..., torch.Tensor]) -> Callable[..., Batch]:
    def make(**arguments: Any) -> Batch:
        return RowLayout(OBSERVATIONS, ACTIONS).view(make_rows(**arguments))

    return make
