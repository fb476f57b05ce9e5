"""A module's parameters in one vector, so that every step over them is one operation.

The master values are float32. Where products run in a narrower type, a copy of the module
in that type computes, and is refreshed from the master after each optimizer step.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator

M = TypeVar("M", bound=nn.Module)


def parameter_count(module: nn.Module) -> int:
    """Elements of all parameters of `module`."""
    return sum(parameter.numel() for parameter in module.parameters())


class ParameterVector(Generic[M]):
    """A module whose parameters are views of one float32 vector.

    Args:
        module: Its parameters become views of `values` and never require gradients; its
            device is kept.
        dtype: Element type of the products; float32 or narrower.
        gradient: (n,) float32 vector that `backward` fills; None for what is not trained.

    Attributes:
        module: The master, float32.
        compute: What losses are computed with: a twin of `module` over the same memory, or
            over a copy in `dtype` but for modules that say ``full_precision = True``.
        values: (n,) float32 master values.
    """

    def __init__(
        self, module: M, *, dtype: torch.dtype = torch.float32, gradient: Tensor | None = None
    ) -> None:
        self.module = module
        self.values = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
        _alias(module, self.values, self.values)
        module.requires_grad_(requires_grad=False)
        self._compute_values = self.values.to(dtype)  # the same vector where nothing narrows
        self.compute: M = copy.deepcopy(module)
        _alias(self.compute, self.values, self._compute_values)
        self.compute.requires_grad_(requires_grad=gradient is not None)
        self._leaves = tuple(self.compute.parameters())
        self._slots = [] if gradient is None else _views(gradient, self._leaves)

    def backward(self, loss: Tensor) -> None:
        """Write the gradient of `loss` by these parameters, and by no others, into `gradient`."""
        gradients = torch.autograd.grad(loss, self._leaves)
        torch._foreach_copy_(self._slots, gradients)

    def named_gradients(self) -> Iterator[tuple[str, Tensor]]:
        """What `backward` filled, by the parameters' names; nothing where nothing is trained."""
        names = (name for name, _ in self.module.named_parameters())
        return zip(names, self._slots, strict=False)

    def refresh(self) -> None:
        """Bring the computing copy up to the master's values."""
        if self._compute_values is not self.values:
            self._compute_values.copy_(self.values)


def _views(vector: Tensor, parameters: tuple[nn.Parameter, ...]) -> list[Tensor]:
    views = []
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        views.append(vector[start:end].view(parameter.shape))
        start = end
    return views


def _alias(module: nn.Module, master: Tensor, narrow: Tensor) -> None:
    """Point parameters into `narrow`, those of full-precision modules into `master`."""
    parameters = tuple(module.parameters())
    full = {
        id(parameter)
        for part in module.modules()
        if getattr(part, "full_precision", False)
        for parameter in part.parameters()
    }
    pairs = zip(_views(master, parameters), _views(narrow, parameters), strict=True)
    for parameter, (wide, low) in zip(parameters, pairs, strict=True):
        parameter.data = wide if id(parameter) in full else low
