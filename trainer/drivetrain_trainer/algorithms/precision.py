"""Which arithmetic the matrix products of a device run in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from drivetrain_api.algorithms import Precision

if TYPE_CHECKING:
    from collections.abc import Mapping

CPU_BF16_CAPABILITIES: Final = ("avx512_bf16", "amx_bf16")
"""Instructions with which bf16 products beat float32 on a CPU; without them they lose."""

_DTYPES: Final = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16}


def resolve_precision(precision: Precision, device: torch.device) -> Precision:
    """`auto` turned into what `device` is faster with; an explicit choice is kept.

    Args:
        precision: `algo.precision` as configured.
        device: Where the learner computes.
    """
    if precision is not Precision.AUTO:
        return precision
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return Precision.BF16 if native else Precision.FP32
    return cpu_precision(torch.cpu.get_capabilities())


def cpu_precision(capabilities: Mapping[str, object]) -> Precision:
    """What `auto` means on a CPU with these `torch.cpu.get_capabilities()`."""
    has_bf16 = any(capabilities.get(name, False) for name in CPU_BF16_CAPABILITIES)
    return Precision.BF16 if has_bf16 else Precision.FP32


def compute_dtype(precision: Precision) -> torch.dtype:
    """Element type of the matrix products.

    Raises:
        ValueError: `precision` is still `auto`.
    """
    if precision is Precision.AUTO:
        raise ValueError("precision auto: resolve it for a device first")
    return _DTYPES[precision]
