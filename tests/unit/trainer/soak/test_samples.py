from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_api.artifacts.soak import SAMPLE_LIMIT, SoakFigures
from drivetrain_trainer.soak.samples import Sample, SampleStore


def figures(rss: int, *, pss: int | None = None, gpu: int | None = None) -> SoakFigures:
    return SoakFigures(
        processes=2,
        rss_bytes=rss,
        pss_bytes=pss,
        fds=rss % 7,
        threads=3,
        shm_bytes=0,
        gpu_bytes=gpu,
    )


def sample(index: int, rss: int) -> Sample:
    return Sample(
        at=float(index), raw=1, mean=figures(rss), peak=figures(rss), steps=10, seconds=2.0
    )


def test_merging_weighs_the_means_and_keeps_peaks_and_rates() -> None:
    merged = sample(0, 100).then(sample(1, 200)).then(sample(2, 900))
    assert (merged.at, merged.raw) == (2.0, 3)
    assert merged.mean.rss_bytes == 400
    assert merged.peak.rss_bytes == 900
    assert merged.rate == 5.0


def test_what_only_one_of_two_knows_is_kept() -> None:
    early = Sample.single(0.0, figures(1, pss=8))
    late = Sample.single(1.0, figures(1, gpu=4))
    merged = early.then(late)
    assert (merged.mean.pss_bytes, merged.mean.gpu_bytes) == (8, 4)
    assert (merged.peak.pss_bytes, merged.peak.gpu_bytes) == (8, 4)
    assert (merged.rate, merged.iteration) == (None, None)


@given(st.integers(0, 2000), st.sampled_from([8, 10, 64]))
def test_however_long_a_soak_its_samples_are_bounded_and_none_is_lost(
    count: int, limit: int
) -> None:
    store = SampleStore(limit)
    for index in range(count):
        store.add(sample(index, index))
    kept = store.samples
    assert len(kept) <= limit
    assert len(kept) >= min(count, limit // 2)
    assert sum(one.raw for one in kept) == count == store.raw
    assert sum(one.steps for one in kept) == 10 * count
    if count:
        assert kept[-1].at == count - 1
        assert max(one.peak.rss_bytes for one in kept) == count - 1
        assert [one.at for one in kept] == sorted(one.at for one in kept)


def test_an_artifact_has_room_for_all_that_is_kept() -> None:
    store = SampleStore()
    for index in range(3 * SAMPLE_LIMIT + 5):
        store.add(sample(index, 5))
    assert len(store.samples) <= SAMPLE_LIMIT


@pytest.mark.parametrize("limit", [0, 6, 9])
def test_a_limit_that_cannot_be_halved_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="limit must be even and at least 8"):
        SampleStore(limit)
