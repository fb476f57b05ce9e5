from __future__ import annotations

import pytest
import torch

from drivetrain_trainer.algorithms.optimizer import VectorAdamW

KEEP, SKIP = torch.zeros(()), torch.ones(())


def _vector(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, VectorAdamW]:
    gradient = torch.zeros_like(values)
    optimizer = VectorAdamW(
        values, gradient, learning_rate=0.01, betas=(0.9, 0.95), weight_decay=0.1
    )
    return values, gradient, optimizer


def _gradients(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(7, generator=generator) for _ in range(count)]


def test_steps_equal_the_reference_optimizer() -> None:
    values, gradient, optimizer = _vector(torch.linspace(-1, 1, 7))
    parameter = torch.nn.Parameter(values.clone())
    reference = torch.optim.AdamW([parameter], lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)
    for given in _gradients(20):
        gradient.copy_(given)
        optimizer.step(skip=KEEP)
        parameter.grad = given.clone()
        reference.step()
    torch.testing.assert_close(values, parameter.detach())


def test_the_divisor_scales_the_gradient() -> None:
    plain, plain_gradient, plain_optimizer = _vector(torch.ones(7))
    scaled, scaled_gradient, scaled_optimizer = _vector(torch.ones(7))
    for given in _gradients(5):
        plain_gradient.copy_(given)
        plain_optimizer.step(skip=KEEP)
        scaled_gradient.copy_(given * 4)
        scaled_optimizer.step(skip=KEEP, divisor=torch.tensor(4.0))
    torch.testing.assert_close(plain, scaled)


def test_a_skipped_step_leaves_no_trace() -> None:
    values, gradient, optimizer = _vector(torch.ones(7))
    first, second, *_ = _gradients(2)
    gradient.copy_(first)
    optimizer.step(skip=KEEP)
    before, state = values.clone(), optimizer.state_dict()
    gradient.fill_(float("nan"))
    optimizer.step(skip=SKIP, divisor=torch.tensor(2.0))
    assert torch.equal(values, before)
    for name, tensor in optimizer.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    gradient.copy_(second)
    optimizer.step(skip=KEEP)
    assert values.isfinite().all()
    assert not torch.equal(values, before)


def test_state_goes_on_to_the_bit() -> None:
    values, gradient, optimizer = _vector(torch.ones(7))
    gradients = _gradients(6)
    for given in gradients[:3]:
        gradient.copy_(given)
        optimizer.step(skip=KEEP)
    again, again_gradient, resumed = _vector(values.clone())
    resumed.load_state_dict(optimizer.state_dict())
    for given in gradients[3:]:
        for into, stepped in ((gradient, optimizer), (again_gradient, resumed)):
            into.copy_(given)
            stepped.step(skip=KEEP)
    assert torch.equal(values, again)


def test_state_of_another_size_is_refused() -> None:
    _, _, small = _vector(torch.ones(7))
    _, _, large = _vector(torch.ones(8))
    with pytest.raises(RuntimeError, match=r"first has shape \(7,\), the network's is \(8,\)"):
        large.load_state_dict(small.state_dict())
