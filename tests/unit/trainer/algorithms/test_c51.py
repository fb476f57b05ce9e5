from __future__ import annotations

import math

import pytest
import torch

from drivetrain_trainer.algorithms.c51 import Support, cross_entropy

CPU = torch.device("cpu")


def _project(
    probabilities: list[float], reward: float, discount: float, support: Support
) -> list[float]:
    projected = support.project(
        torch.tensor([probabilities]), torch.tensor([reward]), torch.tensor([discount])
    )
    return [float(p) for p in projected[0]]


@pytest.mark.parametrize(
    ("probabilities", "reward", "discount", "expected"),
    [
        # Atoms -1, 0, 1. Nothing moves.
        ([0.2, 0.5, 0.3], 0.0, 1.0, [0.2, 0.5, 0.3]),
        # 0 moves to 0.25: three quarters stay, a quarter goes up.
        ([0.0, 1.0, 0.0], 0.25, 1.0, [0.0, 0.75, 0.25]),
        # Contracted by a half: -0.5 and 0.5 split evenly.
        ([0.4, 0.0, 0.6], 0.0, 0.5, [0.2, 0.5, 0.3]),
        # -0.5 + 0.2 = -0.3 and 0.5 + 0.2 = 0.7: split 0.3/0.7 and 0.3/0.7.
        ([0.5, 0.0, 0.5], 0.2, 0.5, [0.15, 0.5, 0.35]),
        # Past the upper end: everything on the last atom.
        ([0.1, 0.2, 0.7], 5.0, 1.0, [0.0, 0.0, 1.0]),
        # Past the lower end.
        ([0.1, 0.2, 0.7], -5.0, 1.0, [1.0, 0.0, 0.0]),
        # Terminal: the reward alone counts, whatever the next distribution is.
        ([0.1, 0.2, 0.7], 0.5, 0.0, [0.0, 0.5, 0.5]),
        # Exactly onto the top atom.
        ([0.0, 1.0, 0.0], 1.0, 1.0, [0.0, 0.0, 1.0]),
    ],
)
def test_projection_by_hand(
    probabilities: list[float], reward: float, discount: float, expected: list[float]
) -> None:
    projected = _project(probabilities, reward, discount, Support(3, -1.0, 1.0, CPU))
    assert projected == pytest.approx(expected, abs=1e-6)


def test_projection_keeps_mass_and_mean_inside_the_support() -> None:
    support = Support(51, -10.0, 10.0, CPU)
    generator = torch.Generator().manual_seed(1)
    probabilities = torch.randn(2, 64, 51, generator=generator).softmax(-1)
    reward = torch.randn(64, generator=generator)
    projected = support.project(probabilities, reward, torch.full((64,), 0.5))
    torch.testing.assert_close(projected.sum(-1), torch.ones(2, 64))
    torch.testing.assert_close(
        support.expectation(projected), reward + 0.5 * support.expectation(probabilities)
    )


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_broken_reward_shows_in_its_row_alone(broken: float) -> None:
    support = Support(5, -1.0, 1.0, CPU)
    probabilities = torch.full((2, 3, 5), 0.2)
    reward = torch.tensor([0.0, broken, 0.0])
    projected = support.project(probabilities, reward, torch.ones(3))
    assert projected[:, 1].isnan().any()
    assert projected[:, [0, 2]].isfinite().all()


def test_cross_entropy_is_least_at_the_target() -> None:
    target = torch.tensor([0.1, 0.6, 0.3])
    entropy = -(target * target.log()).sum()
    torch.testing.assert_close(cross_entropy(target.log() + 3.0, target), entropy)
    assert cross_entropy(torch.zeros(3), target) > entropy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((1, -1.0, 1.0), "num_atoms 1"), ((5, 1.0, 1.0), r"v_min 1\.0 must lie below v_max 1\.0")],
)
def test_an_empty_support_is_refused(arguments: tuple[int, float, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Support(*arguments, CPU)
