"""The four figures that every reduction is made of: masked sum, count, least, greatest.

NaN and infinities: an element outside its mask never counts, whatever it holds. A valid NaN
makes the sum, and so the mean, NaN, and likewise the least and the greatest element; an
infinity is an element like any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch

from drivetrain_trainer.stats.reduce_type import ReduceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """Figures of some elements on the host; those of none are the neutral ones."""

    total: float = 0.0
    count: float = 0.0
    least: float = math.inf
    greatest: float = -math.inf

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Figures of host values; the sum is the exact one, rounded once."""
        elements = list(values)
        if not elements:
            return cls()
        if len(elements) == 1:
            return cls(elements[0], 1.0, elements[0], elements[0])
        if any(math.isnan(value) for value in elements):
            return cls(math.nan, float(len(elements)), math.nan, math.nan)
        return cls(_exact_sum(elements), float(len(elements)), min(elements), max(elements))

    def __add__(self, other: Moments) -> Moments:
        if not self.count or not other.count:  # most keys have a single batch
            return self if self.count else other
        return Moments(
            self.total + other.total,
            self.count + other.count,
            _least(self.least, other.least),
            -_least(-self.greatest, -other.greatest),
        )

    def figures(self, key: str, reduce_type: ReduceType) -> dict[str, float]:
        """What an export gives for `key`; a mean or extreme of no elements is left out."""
        names = reduce_type.outputs(key)
        if reduce_type is ReduceType.SUM:
            return {names[0]: self.total}
        if not self.count:
            return {names[1]: 0.0} if reduce_type is ReduceType.SCALAR else {}
        mean = self.total / self.count
        if reduce_type is ReduceType.AVG:
            return {names[0]: mean}
        values = {
            ReduceType.AVG_MIN_MAX: (mean, self.least, self.greatest),
            ReduceType.MIN: (self.least,),
            ReduceType.MAX: (self.greatest,),
            ReduceType.SCALAR: (mean, self.count),
        }[reduce_type]
        return dict(zip(names, values, strict=True))


def masked_moments(value: Tensor, mask: Tensor) -> Tensor:
    """The figures of a batch on its device, without waiting for it.

    Args:
        value: any shape, any real dtype.
        mask: bool, same shape: the valid elements.

    Returns:
        float64 (4,): sum, count, least, greatest of the valid elements; inf and -inf as
        extremes of none.
    """
    value = value.detach()
    if not value.is_floating_point():
        value = value.to(torch.float64)
    if value.numel() == 0:
        nothing = torch.zeros(4, dtype=torch.float64, device=value.device)
        nothing[2] = math.inf
        nothing[3] = -math.inf
        return nothing
    return torch.stack(
        (
            torch.where(mask, value, 0.0).sum(dtype=torch.float64),
            mask.sum(dtype=torch.float64),
            torch.where(mask, value, math.inf).amin().to(torch.float64),
            torch.where(mask, value, -math.inf).amax().to(torch.float64),
        )
    )


def folded(batches: list[Tensor]) -> Tensor:
    """Several batches' figures, each float64 (4,) on one device, as one."""
    stacked = torch.stack(batches)
    return torch.cat((stacked[:, :2].sum(0), stacked[:, 2:3].amin(0), stacked[:, 3:].amax(0)))


def _exact_sum(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # beyond float64, or infinities of both signs
        return sum(values)


def _least(left: float, right: float) -> float:
    return math.nan if math.isnan(left) or math.isnan(right) else min(left, right)
