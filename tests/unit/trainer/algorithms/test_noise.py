from __future__ import annotations

import itertools

import pytest
import torch

from drivetrain_trainer.algorithms.noise import NoiseStreams, Stream, mix

CPU = torch.device("cpu")


def _draw(streams: NoiseStreams, stream: Stream, counter: int) -> torch.Tensor:
    return torch.randn(8, generator=streams.at(stream, counter))


def test_a_draw_depends_on_its_counter_alone() -> None:
    first, second = (NoiseStreams(5, rank=1, device=CPU) for _ in range(2))
    for counter in range(4):
        _draw(first, Stream.ACTION, counter)
    assert torch.equal(_draw(first, Stream.UPDATE, 9), _draw(second, Stream.UPDATE, 9))


def test_no_two_streams_ranks_counters_or_seeds_share_noise() -> None:
    draws = [
        _draw(NoiseStreams(seed, rank=rank, device=CPU), stream, counter)
        for seed, rank, stream, counter in itertools.product(
            (0, 1), (0, 1), Stream, (0, 1, 2, 2**40)
        )
    ]
    for one, other in itertools.combinations(draws, 2):
        assert not torch.equal(one, other)


@pytest.mark.parametrize("bits", [(0,), (1,), (7, 3), (2**32, 5)])
def test_a_change_of_one_bit_changes_about_half_of_the_seed(bits: tuple[int, ...]) -> None:
    changed = (*bits[:-1], bits[-1] ^ 1)
    assert 16 <= (mix(*bits) ^ mix(*changed)).bit_count() <= 48
    assert 0 <= mix(*bits) < 2**64
