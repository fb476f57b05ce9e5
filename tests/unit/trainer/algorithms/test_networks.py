from __future__ import annotations

import pytest
import torch
from torch import nn

from drivetrain_api.algorithms import Activation
from drivetrain_trainer.algorithms.networks import (
    TwinLayerNorm,
    TwinLinear,
    TwinMlp,
    TwinScalarHead,
    hidden_layers,
    make_activation,
)

FUNCTIONS = {
    Activation.RELU: torch.relu,
    Activation.SILU: nn.functional.silu,
    Activation.ELU: nn.functional.elu,
    Activation.TANH: torch.tanh,
}


def _separate(twins: TwinMlp, which: int) -> nn.Sequential:
    """One of the twins as a network of plain layers holding the same numbers."""
    layers: list[nn.Module] = []
    for layer in [*twins.trunk, twins.head]:
        if isinstance(layer, TwinLinear):
            plain: nn.Linear | nn.LayerNorm = nn.Linear(*layer.weight.shape[1:])
            weight = layer.weight[which].t()
        elif isinstance(layer, TwinScalarHead):
            plain = nn.Linear(layer.weight.shape[-1], 1)
            weight = layer.weight[which]
        elif isinstance(layer, TwinLayerNorm):
            plain = nn.LayerNorm(layer.weight.shape[-1])
            weight = layer.weight[which, 0]
        else:
            layers.append(layer)
            continue
        with torch.no_grad():
            plain.weight.copy_(weight)
            plain.bias.copy_(layer.bias[which].reshape(plain.bias.shape))
        layers.append(plain)
    return nn.Sequential(*layers)


@pytest.mark.parametrize("outputs", [1, 7])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", list(Activation))
def test_twins_equal_two_separate_networks(
    activation: Activation, outputs: int, *, layer_norm: bool
) -> None:
    torch.manual_seed(0)
    twins = TwinMlp(5, (16, 8), outputs, activation=activation, layer_norm=layer_norm)
    with torch.no_grad():
        for parameter in twins.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    inputs = torch.randn(32, 5)
    together = twins(inputs)
    assert together.shape == ((2, 32) if outputs == 1 else (2, 32, outputs))
    together.square().sum().backward()
    for which in range(2):
        apart = _separate(twins, which)
        alone = apart(inputs)
        torch.testing.assert_close(together[which], alone.reshape(together[which].shape))
        alone.square().sum().backward()
        first, separate = twins.trunk[0], apart[0]
        assert isinstance(first, TwinLinear)
        assert first.weight.grad is not None
        assert isinstance(separate, nn.Linear)
        assert separate.weight.grad is not None
        torch.testing.assert_close(first.weight.grad[which], separate.weight.grad.t())


def test_twins_start_apart_and_within_the_usual_bounds() -> None:
    torch.manual_seed(0)
    layer = TwinLinear(64, 256)
    assert not torch.equal(layer.weight[0], layer.weight[1])
    assert layer.weight.abs().max() <= 1 / 8
    assert float(layer.weight.detach().std()) == pytest.approx(1 / 8 / 3**0.5, rel=0.02)


@pytest.mark.parametrize("activation", list(Activation))
def test_every_activation_is_what_it_says(activation: Activation) -> None:
    inputs = torch.linspace(-3, 3, 13)
    expected = FUNCTIONS[activation](inputs)
    torch.testing.assert_close(make_activation(activation)(inputs.clone()), expected)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_hidden_layers_have_the_configured_sizes(*, layer_norm: bool) -> None:
    layers = hidden_layers(3, (8, 4), activation=Activation.SILU, layer_norm=layer_norm)
    kinds = [nn.Linear, *([nn.LayerNorm] if layer_norm else []), nn.SiLU] * 2
    assert [type(layer) for layer in layers] == kinds
    assert layers(torch.zeros(2, 6, 3)).shape == (2, 6, 4)


def test_the_scalar_head_sums_in_float32_under_bf16() -> None:
    head = TwinScalarHead(256)
    nn.init.constant_(head.weight, 1.0)
    nn.init.constant_(head.bias, 1000.0)
    features = torch.full((2, 1, 256), 1 / 256, dtype=torch.bfloat16)
    assert head(features).tolist() == [[1001.0], [1001.0]]
