"""A small mixture of experts, whose routers the tests count."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from drivetrain_trainer.stats.moe_balance import ExpertCounts, counts_of_indices


class TopKRouter(nn.Module):
    """(T, width) -> weights (T, k) and chosen experts (T, k)."""

    def __init__(self, width: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, experts)
        self.experts, self.chosen = experts, chosen

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        weights, indices = self.linear(inputs).softmax(-1).topk(self.chosen)
        return weights, indices


class MoeLayer(nn.Module):
    def __init__(self, width: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.router = TopKRouter(width, experts, chosen)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))
        self.shared = nn.Linear(width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        weights, indices = self.router(inputs)
        output: Tensor = self.shared(inputs)
        for place, expert in enumerate(self.experts):
            share = (weights * (indices == place)).sum(-1, keepdim=True)
            output = output + share * expert(inputs)
        return output


class MoeModel(nn.Module):
    """Layers of experts one after the other, recomputed in the backward pass where asked."""

    def __init__(
        self,
        width: int = 4,
        experts: int = 4,
        chosen: int = 2,
        layers: int = 2,
        *,
        recompute: str = "none",
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MoeLayer(width, experts, chosen) for _ in range(layers))
        self.recompute = recompute

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers:
            if self.recompute == "none":
                inputs = layer(inputs)
            else:
                inputs = checkpoint(layer, inputs, use_reentrant=self.recompute == "reentrant")
        return inputs


def supported(router: nn.Module) -> tuple[int, ExpertCounts]:
    """How `MoeBalance.attach_all` reads a `TopKRouter`."""
    assert isinstance(router, TopKRouter)
    experts = router.experts

    def counts(output: Any) -> Tensor:
        return counts_of_indices(output[1], experts)

    return experts, counts


def chosen_by_hand(model: MoeModel, inputs: Tensor) -> list[list[int]]:
    """Counts of every layer by a loop over all positions."""
    found = []
    with torch.no_grad():
        for layer in model.layers:
            assert isinstance(layer, MoeLayer)
            counts = [0] * layer.router.experts
            for position in layer.router(inputs)[1].tolist():
                for expert in position:
                    counts[expert] += 1
            found.append(counts)
            inputs = layer(inputs)
    return found
