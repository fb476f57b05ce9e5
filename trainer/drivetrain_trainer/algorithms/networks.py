"""Multilayer perceptrons: a plain one, and twins stacked into one batched module."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn

from drivetrain_api.algorithms import Activation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TWINS: Final = 2

_ACTIVATIONS: Final[dict[Activation, Callable[[], nn.Module]]] = {
    # In place where the backward pass needs the result rather than the argument.
    Activation.RELU: lambda: nn.ReLU(inplace=True),
    Activation.SILU: nn.SiLU,
    Activation.ELU: nn.ELU,
    Activation.TANH: nn.Tanh,
}


def make_activation(activation: Activation) -> nn.Module:
    """The module of a configured activation."""
    return _ACTIVATIONS[activation]()


def hidden_layers(
    inputs: int, hidden: Sequence[int], *, activation: Activation, layer_norm: bool
) -> nn.Sequential:
    """(..., inputs) -> (..., hidden[-1]): Linear, LayerNorm where asked for, activation, each."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers.append(nn.Linear(inputs, width))
        if layer_norm:
            layers.append(nn.LayerNorm(width))
        layers.append(make_activation(activation))
        inputs = width
    return nn.Sequential(*layers)


class TwinLinear(nn.Module):
    """Two linear layers of one shape: (2, B, inputs) -> (2, B, outputs), one batched product.

    Weight (2, inputs, outputs), bias (2, 1, outputs), each twin initialised as `nn.Linear` is.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(TWINS, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(TWINS, 1, outputs))
        bound = 1.0 / math.sqrt(inputs)
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply each twin to its slice of `inputs` (2, B, inputs)."""
        return torch.baddbmm(self.bias, inputs, self.weight)


class TwinScalarHead(nn.Module):
    """(2, B, inputs) -> (2, B): two dot products, summed in float32 whatever the input's type.

    Reading the features once costs a fifth of a matrix product with one column, and returns
    of four digits keep their last ones under bf16. Its parameters stay float32 for that.
    """

    full_precision = True
    """`ParameterVector` leaves these parameters in the master's type."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(TWINS, 1, inputs))
        self.bias = nn.Parameter(torch.empty(TWINS, 1))
        bound = 1.0 / math.sqrt(inputs)
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, features: Tensor) -> Tensor:
        """Float32 values (2, B) of `features` (2, B, inputs)."""
        return (features.float() * self.weight).sum(-1) + self.bias


class TwinLayerNorm(nn.Module):
    """LayerNorm of (2, B, width) with a gain and a bias for each twin."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(TWINS, 1, width))
        self.bias = nn.Parameter(torch.zeros(TWINS, 1, width))

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise each row, then scale and shift it by its twin's parameters."""
        normalised = nn.functional.layer_norm(inputs, inputs.shape[-1:])
        return torch.addcmul(self.bias, normalised, self.weight)


class TwinMlp(nn.Module):
    """Two perceptrons of one shape as one module: (B, inputs) -> (2, B) or (2, B, outputs).

    Args:
        inputs: Columns of the input that both twins see.
        hidden: Hidden layer sizes.
        outputs: Columns of the output; a single one is dropped, giving (2, B).
        activation: After each hidden layer.
        layer_norm: LayerNorm before each activation.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        activation: Activation,
        layer_norm: bool,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = inputs
        for size in hidden:
            layers.append(TwinLinear(width, size))
            if layer_norm:
                layers.append(TwinLayerNorm(size))
            layers.append(make_activation(activation))
            width = size
        self.trunk = nn.Sequential(*layers)
        self.head = TwinScalarHead(width) if outputs == 1 else TwinLinear(width, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Float32 outputs of both twins for `inputs` (B, inputs)."""
        outputs: Tensor = self.head(self.trunk(inputs.expand(TWINS, *inputs.shape)))
        return outputs.float()
