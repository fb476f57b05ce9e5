from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.runtime.replay_layout import RowLayout


@given(observation_dim=st.integers(1, 9), action_dim=st.integers(1, 5), count=st.integers(0, 7))
def test_what_is_packed_is_what_is_viewed(
    observation_dim: int, action_dim: int, count: int
) -> None:
    layout = RowLayout(observation_dim, action_dim)
    generator = torch.Generator().manual_seed(observation_dim * 100 + action_dim * 10 + count)
    observation, next_observation = torch.rand(2, count, observation_dim, generator=generator)
    action = torch.rand(count, action_dim, generator=generator)
    reward = torch.rand(count, generator=generator)
    terminated, truncated = torch.rand(2, count, generator=generator) < 0.5
    rows = torch.full((count, layout.width), torch.nan)
    layout.pack(
        rows,
        observation=observation,
        action=action,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        next_observation=next_observation,
    )
    assert not rows.isnan().any()
    batch = layout.view(rows)
    assert torch.equal(batch.observation, observation)
    assert torch.equal(batch.action, action)
    assert torch.equal(batch.reward, reward)
    assert torch.equal(batch.done, (terminated | truncated).float())
    assert torch.equal(batch.truncated, truncated.float())
    assert torch.equal(batch.next_observation, next_observation)


@pytest.mark.parametrize(
    ("terminated", "truncated", "weight"),
    [(False, False, 1.0), (True, False, 0.0), (False, True, 1.0), (True, True, 1.0)],
)
def test_only_a_terminal_state_is_not_bootstrapped(
    weight: float, *, terminated: bool, truncated: bool
) -> None:
    layout = RowLayout(1, 1)
    rows = torch.zeros(1, layout.width)
    layout.pack(
        rows,
        observation=torch.zeros(1, 1),
        action=torch.zeros(1, 1),
        reward=torch.zeros(1),
        terminated=torch.tensor([terminated]),
        truncated=torch.tensor([truncated]),
        next_observation=torch.zeros(1, 1),
    )
    assert layout.view(rows).bootstrap.tolist() == [weight]


def test_views_keep_leading_dimensions_and_share_memory() -> None:
    layout = RowLayout(3, 2)
    rows = torch.zeros(4, 5, layout.width)
    batch = layout.view(rows)
    assert layout.width == 11
    assert batch.observation.shape == (4, 5, 3)
    assert batch.reward.shape == batch.bootstrap.shape == (4, 5)
    batch.reward[2, 3] = 1.0
    assert rows[2, 3, 5] == 1.0


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match="width 10: the layout's is 11"):
        RowLayout(3, 2).view(torch.zeros(1, 10))


@pytest.mark.parametrize("dimensions", [(0, 1), (1, 0)])
def test_an_empty_part_is_refused(dimensions: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="dimension 0: at least 1"):
        RowLayout(*dimensions)
