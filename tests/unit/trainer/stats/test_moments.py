from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain_trainer.stats.moments import Moments, folded, masked_moments

FINITE = st.floats(-1e6, 1e6, width=32)
BATCH = st.lists(st.tuples(FINITE | st.just(math.nan), st.booleans()), max_size=12)


def moments_of(batch: list[tuple[float, bool]]) -> torch.Tensor:
    value = torch.tensor([v for v, _ in batch], dtype=torch.float32)
    return masked_moments(value, torch.tensor([m for _, m in batch], dtype=torch.bool))


def expected(elements: list[float]) -> list[float]:
    if not elements:
        return [0.0, 0.0, math.inf, -math.inf]
    array = np.array(elements, dtype=np.float64)
    return [float(array.sum()), float(array.size), float(array.min()), float(array.max())]


@settings(max_examples=60, deadline=None)
@given(st.lists(BATCH, min_size=1, max_size=5))
def test_any_split_of_the_elements_gives_the_same_figures(
    batches: list[list[tuple[float, bool]]],
) -> None:
    valid = [v for batch in batches for v, m in batch if m]
    figures = [moments_of(batch) for batch in batches]
    wanted = pytest.approx(expected(valid), rel=1e-12, abs=1e-6, nan_ok=True)
    assert folded(figures).tolist() == wanted
    total = Moments()
    for one in figures:
        total += Moments(*one.tolist())
    assert [total.total, total.count, total.least, total.greatest] == wanted
    host = Moments.of(valid)
    assert [host.total, host.count, host.least, host.greatest] == wanted


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([0.1] * 10, 1.0),  # summed in turn this is 0.9999999999999999
        ([1e16, 1.0, -1e16], 1.0),
        ([math.inf, 1.0], math.inf),
        ([math.inf, -math.inf], math.nan),
        ([1e308, 1e308], math.inf),
    ],
)
def test_host_sums_are_exact(values: list[float], total: float) -> None:
    assert Moments.of(values).total == pytest.approx(total, rel=0, nan_ok=True)
