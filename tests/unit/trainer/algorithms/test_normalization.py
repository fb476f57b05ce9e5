from __future__ import annotations

import numpy as np
import pytest
import torch

from drivetrain_trainer.algorithms.normalization import (
    CLIP,
    MINIMUM_VARIANCE,
    ObservationNormalizer,
    PendingStatistics,
    statistics_size,
)

WIDTH = 3


def _chunks(seed: int, sizes: list[int]) -> list[torch.Tensor]:
    """Columns of very different places and spreads, a few rows at a time."""
    generator = np.random.default_rng(seed)
    place, spread = np.array([0.0, 1000.0, -3.0]), np.array([1.0, 0.5, 50.0])
    return [
        torch.from_numpy(generator.normal(place, spread, (size, WIDTH))).float() for size in sizes
    ]


def _ranks(*pending: PendingStatistics) -> torch.Tensor:
    return torch.stack([rank.take() for rank in pending])


def test_statistics_equal_numpys_over_everything_seen() -> None:
    chunks = _chunks(0, [1, 7, 64, 3, 200])
    normalizer = ObservationNormalizer(WIDTH)
    pending = PendingStatistics(normalizer)
    for index, chunk in enumerate(chunks):
        pending.add(chunk)
        if index % 2:  # some merges cover several observations
            normalizer.merge(_ranks(pending))
    normalizer.merge(_ranks(pending))
    everything = torch.cat(chunks).double().numpy()
    np.testing.assert_allclose(normalizer.mean.numpy(), everything.mean(0), rtol=1e-12)
    variance = normalizer.sum_of_squares / normalizer.count
    np.testing.assert_allclose(variance.numpy(), everything.var(0), rtol=1e-9)
    assert float(normalizer.count) == len(everything)


def test_normalised_rows_have_mean_0_and_variance_1() -> None:
    (chunk,) = _chunks(1, [5000])
    normalizer = ObservationNormalizer(WIDTH)
    pending = PendingStatistics(normalizer)
    pending.add(chunk)
    normalizer.merge(_ranks(pending))
    rows = normalizer(chunk.view(2, 2500, WIDTH)).view(-1, WIDTH)
    torch.testing.assert_close(rows.mean(0), torch.zeros(WIDTH), atol=1e-3, rtol=0)
    torch.testing.assert_close(rows.std(0), torch.ones(WIDTH), atol=1e-2, rtol=0)


def test_two_ranks_merge_like_one_that_saw_both() -> None:
    left, right = _chunks(2, [40, 9])
    together, apart = ObservationNormalizer(WIDTH), ObservationNormalizer(WIDTH)
    one = PendingStatistics(together)
    first, second = PendingStatistics(apart), PendingStatistics(apart)
    for _ in range(3):
        one.add(torch.cat([left, right]))
        together.merge(_ranks(one))
        first.add(left)
        second.add(right)
        apart.merge(_ranks(first, second))
    for name, buffer in together.named_buffers():
        torch.testing.assert_close(apart.get_buffer(name), buffer, rtol=1e-9, atol=1e-12)


def test_before_any_observation_rows_pass() -> None:
    normalizer = ObservationNormalizer(WIDTH)
    normalizer.merge(torch.zeros(2, statistics_size(WIDTH), dtype=torch.float64))
    rows = torch.tensor([[1.0, -2.0, 3.0]])
    assert torch.equal(normalizer(rows), rows)


def test_a_column_that_never_moves_is_not_blown_up_and_outliers_are_clipped() -> None:
    normalizer = ObservationNormalizer(1)
    pending = PendingStatistics(normalizer)
    pending.add(torch.full((100, 1), 7.0))
    normalizer.merge(_ranks(pending))
    noise = 0.5 * MINIMUM_VARIANCE**0.5
    assert float(normalizer(torch.tensor([[7.0 + noise]]))) == pytest.approx(0.5, rel=1e-3)
    assert float(normalizer(torch.tensor([[1e9]]))) == CLIP
    assert float(normalizer(torch.tensor([[-1e9]]))) == -CLIP


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_rank_with_broken_observations_is_left_out(broken: float) -> None:
    good, bad = _chunks(3, [10, 10])
    bad[4, 1] = broken
    normalizer, reference = ObservationNormalizer(WIDTH), ObservationNormalizer(WIDTH)
    first, second = PendingStatistics(normalizer), PendingStatistics(normalizer)
    first.add(good)
    second.add(bad)
    normalizer.merge(_ranks(first, second))
    alone = PendingStatistics(reference)
    alone.add(good)
    reference.merge(_ranks(alone))
    for name, buffer in reference.named_buffers():
        assert torch.equal(normalizer.get_buffer(name), buffer), name


def test_what_is_pending_survives_a_checkpoint() -> None:
    (chunk,) = _chunks(4, [12])
    normalizer = ObservationNormalizer(WIDTH)
    pending, resumed = PendingStatistics(normalizer), PendingStatistics(normalizer)
    pending.add(chunk)
    resumed.load(pending.state())
    assert torch.equal(pending.take(), resumed.take())
    assert not pending.take().any()
