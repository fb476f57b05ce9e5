from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from drivetrain_api.algorithms import SacConfig
from drivetrain_trainer.algorithms.sac.temperature import Temperature

KEEP = torch.zeros(())


def _temperature(config: SacConfig) -> tuple[Temperature, torch.Tensor]:
    gradient = torch.zeros(())
    return Temperature(config, action_dim=3, gradient=gradient), gradient


@pytest.mark.parametrize(
    ("mean_log_prob", "direction"),
    [(5.0, 1), (-5.0, -1)],  # less entropy than the target of -3: alpha rises; more: it falls
)
def test_alpha_moves_towards_the_target_entropy(
    make_config: Callable[..., SacConfig], mean_log_prob: float, direction: int
) -> None:
    temperature, _ = _temperature(make_config(alpha_init=0.5, alpha_learning_rate=0.01))
    assert float(temperature.value()) == pytest.approx(0.5)
    for _ in range(20):
        temperature.loss(torch.tensor(mean_log_prob))
        temperature.step(skip=KEEP, divisor=None)
    assert (float(temperature.value()) - 0.5) * direction > 0.05


def test_the_gradient_is_that_of_the_loss(make_config: Callable[..., SacConfig]) -> None:
    temperature, gradient = _temperature(make_config(alpha_init=0.2, target_entropy_scale=0.5))
    loss = temperature.loss(torch.tensor(0.7))
    assert float(loss) == pytest.approx(-math.log(0.2) * (0.7 - 1.5))
    assert float(gradient) == pytest.approx(-(0.7 - 1.5))


def test_a_fixed_alpha_stays(make_config: Callable[..., SacConfig]) -> None:
    temperature, _ = _temperature(make_config(alpha_autotune=False, alpha_init=0.3))
    temperature.loss(torch.tensor(5.0))
    temperature.step(skip=KEEP, divisor=None)
    assert float(temperature.value()) == pytest.approx(0.3)
