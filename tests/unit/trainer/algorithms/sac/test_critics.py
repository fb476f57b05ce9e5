from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from drivetrain_api.algorithms import CriticKind, SacConfig
from drivetrain_trainer.algorithms.sac.critics import TwinC51, TwinQ, make_objective

CPU = torch.device("cpu")


def test_twin_q_targets_by_hand() -> None:
    # Terminated: the reward alone. Going on or truncated: the smaller twin, less entropy.
    target = TwinQ().target(
        torch.tensor([[10.0, 10.0, -3.0], [8.0, 8.0, 5.0]]),
        reward=torch.tensor([1.0, 1.0, 0.0]),
        discount=torch.tensor([0.0, 0.9, 0.5]),
        entropy_cost=torch.tensor([100.0, 2.0, -1.0]),
    )
    assert target.tolist() == pytest.approx([1.0, 1.0 + 0.9 * (8.0 - 2.0), 0.5 * (-3.0 + 1.0)])


def test_twin_q_loss_by_hand() -> None:
    outputs = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    loss = TwinQ().loss(outputs, torch.tensor([0.0, 4.0]))
    assert float(loss) == pytest.approx((1 + 4) / 2 + (0 + 16) / 2)


def _c51(make_config: Callable[..., SacConfig]) -> TwinC51:
    return TwinC51(make_config(num_atoms=3, v_min=-1.0, v_max=1.0), CPU)


def _logits(*probabilities: list[float]) -> torch.Tensor:
    return torch.tensor(probabilities).log().unsqueeze(1)


def test_c51_targets_by_hand(make_config: Callable[..., SacConfig]) -> None:
    # Each critic keeps its own distribution: one at -1, one at 1; contracted to -0.5 and 0.5,
    # then moved by 0.25 - 0.5 * 0.5 = 0.
    target = _c51(make_config).target(
        _logits([1.0, 1e-30, 1e-30], [1e-30, 1e-30, 1.0]),
        reward=torch.tensor([0.25]),
        discount=torch.tensor([0.5]),
        entropy_cost=torch.tensor([0.5]),
    )
    torch.testing.assert_close(
        target, torch.tensor([[[0.5, 0.5, 0.0]], [[0.0, 0.5, 0.5]]]), atol=1e-6, rtol=0
    )


def test_c51_climbs_the_twins_mean(make_config: Callable[..., SacConfig]) -> None:
    objective = _c51(make_config)
    logits = _logits([0.5, 0.5, 1e-30], [1e-30, 1e-30, 1.0])
    assert objective.policy_value(logits).tolist() == pytest.approx([(-0.5 + 1.0) / 2])


def test_c51_loss_is_the_cross_entropy_of_both(make_config: Callable[..., SacConfig]) -> None:
    objective = _c51(make_config)
    logits = torch.zeros(2, 4, 3)
    target = torch.zeros(2, 4, 3)
    target[..., 1] = 1.0
    assert float(objective.loss(logits, target)) == pytest.approx(2 * torch.log(torch.tensor(3.0)))
    assert objective.target_values(target).tolist() == [[0.0] * 4] * 2


@pytest.mark.parametrize(
    ("critic", "kind", "outputs"), [(CriticKind.C51, TwinC51, 11), (CriticKind.TWIN_Q, TwinQ, 1)]
)
def test_the_configured_critic_is_taken(
    make_config: Callable[..., SacConfig], critic: CriticKind, kind: type, outputs: int
) -> None:
    objective = make_objective(make_config(critic=critic), CPU)
    assert type(objective) is kind
    assert objective.outputs == outputs
