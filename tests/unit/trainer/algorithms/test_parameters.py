from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from drivetrain_api.algorithms import Activation
from drivetrain_trainer.algorithms.networks import TwinMlp
from drivetrain_trainer.algorithms.parameters import ParameterVector, parameter_count


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def test_the_vector_is_the_module() -> None:
    network = _network()
    untouched = copy.deepcopy(network)
    vector = ParameterVector(network)
    inputs = torch.randn(4, 3)
    assert vector.values.numel() == parameter_count(network) == 3 * 8 + 8 + 8 * 2 + 2
    torch.testing.assert_close(vector.compute(inputs), untouched(inputs), rtol=0, atol=0)
    vector.values.zero_()
    assert not network(inputs).any()
    assert not vector.compute(inputs).any()


def test_backward_writes_the_gradient_and_no_others() -> None:
    network, reference = _network(), _network()
    gradient = torch.full((parameter_count(network),), float("nan"))
    vector = ParameterVector(network, gradient=gradient)
    inputs = torch.randn(4, 3)
    for _ in range(2):  # written, not added up
        vector.backward(vector.compute(inputs).square().sum())
    reference(inputs).square().sum().backward()
    parts = [p.grad.reshape(-1) for p in reference.parameters() if p.grad is not None]
    torch.testing.assert_close(gradient, torch.cat(parts))
    assert all(p.grad is None for p in vector.compute.parameters())


def test_a_narrow_copy_computes_and_follows_its_master() -> None:
    network = _network()
    gradient = torch.zeros(parameter_count(network))
    vector = ParameterVector(network, dtype=torch.bfloat16, gradient=gradient)
    inputs = torch.randn(4, 3, dtype=torch.bfloat16)
    assert vector.compute(inputs).dtype == torch.bfloat16
    vector.backward(vector.compute(inputs).float().square().sum())
    assert gradient.dtype == torch.float32
    assert gradient.any()
    vector.values.mul_(0.5)
    before = vector.compute(inputs)
    vector.refresh()
    assert not torch.equal(vector.compute(inputs), before)
    for master, narrow in zip(network.parameters(), vector.compute.parameters(), strict=True):
        torch.testing.assert_close(narrow.float(), master, rtol=2**-8, atol=0)


def test_full_precision_parts_stay_with_the_master() -> None:
    twins = TwinMlp(3, (4,), 1, activation=Activation.RELU, layer_norm=False)
    vector = ParameterVector(
        twins, dtype=torch.bfloat16, gradient=torch.zeros(parameter_count(twins))
    )
    assert {p.dtype for p in vector.compute.trunk.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in vector.compute.head.parameters()} == {torch.float32}
    vector.values.fill_(0.25)
    assert all(bool((p == 0.25).all()) for p in vector.compute.head.parameters())
    vector.backward(vector.compute(torch.ones(2, 3, dtype=torch.bfloat16)).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_vector_without_a_gradient_builds_no_graph(dtype: torch.dtype) -> None:
    vector = ParameterVector(_network(), dtype=dtype)
    assert not vector.compute(torch.ones(1, 3, dtype=dtype)).requires_grad
    assert not any(p.requires_grad for p in vector.module.parameters())
