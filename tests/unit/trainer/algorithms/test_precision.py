from __future__ import annotations

import pytest
import torch

from drivetrain_api.algorithms import Precision
from drivetrain_trainer.algorithms.precision import (
    compute_dtype,
    cpu_precision,
    resolve_precision,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, Precision.BF16),
        ({"avx512_bf16": False, "amx_bf16": True}, Precision.BF16),
        ({"avx512_bf16": False, "avx512_f": True}, Precision.FP32),
        ({"architecture": "aarch64", "bf16": True}, Precision.FP32),
        ({}, Precision.FP32),
    ],
)
def test_auto_takes_bf16_where_the_cpu_has_the_instructions(
    capabilities: dict[str, object], expected: Precision
) -> None:
    assert cpu_precision(capabilities) is expected


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16])
def test_an_explicit_precision_is_kept(precision: Precision) -> None:
    assert resolve_precision(precision, CPU) is precision


def test_auto_asks_this_machine() -> None:
    resolved = resolve_precision(Precision.AUTO, CPU)
    assert resolved is cpu_precision(torch.cpu.get_capabilities())
    assert compute_dtype(resolved) in {torch.float32, torch.bfloat16}


def test_auto_has_no_type_before_it_is_resolved() -> None:
    with pytest.raises(ValueError, match="resolve it"):
        compute_dtype(Precision.AUTO)
