from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.distributions import Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from drivetrain_api.algorithms import SacConfig
from drivetrain_trainer.algorithms.sac.networks import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    Actor,
    Policy,
    squash,
)


def _numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_log_density_equals_torch_distributions() -> None:
    mean, log_std, noise = _numbers(64, 3), _numbers(64, 3, seed=1) * 0.5, _numbers(64, 3, seed=2)
    sample = squash(mean, log_std, noise)
    reference = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform(cache_size=1)])
    action = torch.tanh(mean + log_std.exp() * noise)
    expected = reference.log_prob(action).sum(-1)  # type: ignore[no-untyped-call]  # no stub
    torch.testing.assert_close(sample.log_prob, expected)
    torch.testing.assert_close(sample.std, log_std.exp())


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.0, 0.3)])
def test_the_density_integrates_to_one_over_actions(mean: float, log_std: float) -> None:
    noise = torch.linspace(-9, 9, 200_001, dtype=torch.float64).unsqueeze(-1)
    sample = squash(torch.full_like(noise, mean), torch.full_like(noise, log_std), noise)
    mass = torch.trapezoid(sample.log_prob.exp(), sample.action.squeeze(-1))
    assert float(mass) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("mean", [-30.0, 30.0])
def test_the_density_stays_finite_where_tanh_saturates(mean: float) -> None:
    means = torch.full((4, 2), mean, requires_grad=True)
    sample = squash(means, torch.zeros(4, 2), torch.randn(4, 2))
    sample.log_prob.sum().backward()  # type: ignore[no-untyped-call]  # no stub
    assert sample.log_prob.isfinite().all()
    assert sample.action.abs().max() <= 1.0
    assert means.grad is not None
    # The density of a saturated action grows by 2 for each unit of the mean.
    torch.testing.assert_close(means.grad, torch.full((4, 2), 2.0 * (1 if mean > 0 else -1)))


def test_gradients_pass_through_the_sample() -> None:
    mean = _numbers(4, 2).requires_grad_()
    log_std = (_numbers(4, 2, seed=1) * 0.3).requires_grad_()
    noise = _numbers(4, 2, seed=2)
    assert torch.autograd.gradcheck(lambda m, s: tuple(squash(m, s, noise)), (mean, log_std))


def test_the_actor_bounds_its_deviation(make_config: Callable[..., SacConfig]) -> None:
    actor = Actor(make_config(), 5, 2)
    with torch.no_grad():
        actor.head.bias.copy_(torch.tensor([0.0, 0.0, 1e4, -1e4]))
    mean, log_std = actor(torch.randn(3, 7, 5))
    assert mean.shape == log_std.shape == (3, 7, 2)
    assert log_std[..., 0].eq(LOG_STD_MAX).all()
    assert log_std[..., 1].eq(LOG_STD_MIN).all()


@pytest.mark.parametrize("observation_normalization", [False, True])
def test_the_policy_is_the_mode_whatever_the_leading_dimensions(
    make_config: Callable[..., SacConfig], *, observation_normalization: bool
) -> None:
    policy = Policy(make_config(observation_normalization=observation_normalization), 5, 2)
    rows = torch.randn(3, 4, 5)
    actions = policy(rows)
    assert actions.shape == (3, 4, 2)
    assert actions.abs().max() < 1.0
    torch.testing.assert_close(policy(rows[1, 2]), actions[1, 2])
    mean, _ = policy.actor(rows)
    torch.testing.assert_close(actions, torch.tanh(mean))
