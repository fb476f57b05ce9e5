"""Means of what updates compute, kept on the device until a report asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

CRITIC_TAGS: Final = (
    "Loss/critic",
    "Train/critic_gradient_norm",
    "Train/target_q_max",
    "Train/target_q_min",
)
ACTOR_TAGS: Final = (
    "Loss/actor",
    "Loss/temperature",
    "Loss/entropy",
    "Policy/temperature",
    "Policy/mean_std",
    "Train/actor_gradient_norm",
    "Train/global_gradient_norm",
)


class MeanMeter:
    """Means of a fixed set of tags over the updates that were not skipped.

    Args:
        tags: Names, in the order in which `add` takes values.
        device: Of the values.
    """

    def __init__(self, tags: tuple[str, ...], device: torch.device) -> None:
        self.tags = tags
        self._totals = torch.zeros(1 + len(tags), device=device)
        self._one = torch.ones((), device=device)

    def add(self, values: tuple[Tensor, ...], *, skipped: Tensor) -> None:
        """Count 0-dim `values` without a graph, one a tag, unless `skipped` (0-dim bool)."""
        self._totals += torch.stack([self._one, *values]).masked_fill_(skipped, 0.0)

    def take(self) -> Tensor:
        """(1 + tags,) count and sums on the device, which start anew."""
        taken = self._totals.clone()
        self._totals.zero_()
        return taken


def fetch_means(meters: Iterable[MeanMeter]) -> dict[str, float]:
    """Means by tag, in one copy from the device; tags that nothing was added to are left out."""
    meters = tuple(meters)
    numbers = iter(torch.cat([meter.take() for meter in meters]).tolist())
    means: dict[str, float] = {}
    for meter in meters:
        means.update(_means(meter.tags, numbers))
    return means


def _means(tags: tuple[str, ...], numbers: Iterator[float]) -> dict[str, float]:
    count = next(numbers)
    sums = [next(numbers) for _ in tags]
    if not count:
        return {}
    return {tag: total / count for tag, total in zip(tags, sums, strict=True)}
