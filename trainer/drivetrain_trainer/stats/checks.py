"""What may be recorded, checked without looking at an element; refusals name the key."""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from drivetrain_trainer.stats.moments import masked_moments
from drivetrain_trainer.stats.reduce_type import COUNT_SUFFIX, StatsError


def check_part(name: str) -> None:
    """Refuse a name that would not join with others by slashes.

    Raises:
        StatsError: it is empty, begins or ends with a slash, or looks like a count's.
    """
    if not name or name.startswith("/") or name.endswith("/"):
        raise StatsError(f"{name!r} is no name of a scope or stat: no slash at an end, not empty")
    if name.endswith(COUNT_SUFFIX):
        raise StatsError(
            f"{name!r} is no name of a stat: {COUNT_SUFFIX} marks the counts of others"
        )


def checked_scalar(key: str, value: object) -> float | Tensor:
    """A number, or the four figures, float64 (4,), of a tensor of one element, on its device.

    Raises:
        StatsError: it is neither.
    """
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise StatsError(
                f"scalar {key!r} is a tensor of shape {tuple(value.shape)}; it takes one element "
                "(a batch is recorded with denominator(...) and stat(...))"
            )
        alone = value.detach().reshape(1)
        return masked_moments(alone, torch.ones_like(alone, dtype=torch.bool))
    if not isinstance(value, Real):
        raise StatsError(f"scalar {key!r} is {value!r} ({type(value).__name__}), not a number")
    return float(value)


def checked_figures(key: str, figures: Tensor) -> Tensor:
    """Figures without a graph.

    Raises:
        StatsError: they are not float64 (4,).
    """
    if figures.shape != (4,) or figures.dtype is not torch.float64:
        raise StatsError(
            f"figures of stat {key!r} are {figures.dtype} {tuple(figures.shape)}; "
            "they must be float64 (4,)"
        )
    return figures.detach()


def checked_mask(key: str, mask: object) -> Tensor:
    """A copy of a mask, which its owner may overwrite then.

    Raises:
        StatsError: it is no bool tensor.
    """
    if not isinstance(mask, Tensor) or mask.dtype is not torch.bool:
        found = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise StatsError(f"denominator {key!r} is {found}; it must be a bool tensor")
    return mask.detach().clone()


def checked_value(key: str, value: object, denominator: str, mask: Tensor) -> Tensor:
    """A batch that fits its mask.

    Raises:
        StatsError: it is no real tensor, or not of the mask's shape and device.
    """
    if not isinstance(value, Tensor) or value.is_complex():
        raise StatsError(f"stat {key!r} is {type(value).__name__}; it must be a real tensor")
    if value.shape != mask.shape:
        raise StatsError(
            f"stat {key!r} has shape {tuple(value.shape)}, its denominator {denominator!r} "
            f"{tuple(mask.shape)}; they must be the same"
        )
    if value.device != mask.device:
        raise StatsError(
            f"stat {key!r} is on {value.device}, its denominator {denominator!r} on {mask.device}"
        )
    return value
