from __future__ import annotations

import copy
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.envs.rng import SEED_LIMIT, ManagerRng, UnsupportedSamplingError


def numpy_state() -> bytes:
    """Of NumPy's global generator, which is nobody's."""
    state: Any = np.random.get_state()  # noqa: NPY002 - the global one is what must not be touched
    return bytes(state[1].tobytes()) + repr(state[2:]).encode()


@pytest.mark.parametrize("seed", [True, 1.0, "1", None, torch.tensor(1)])
def test_a_seed_is_exactly_an_int(seed: Any) -> None:
    with pytest.raises(TypeError, match=r"^env\.seed: an exact integer from 0 to 4294967295, got"):
        ManagerRng(seed)


@pytest.mark.parametrize("seed", [-1, SEED_LIMIT, 2**40])
def test_a_seed_out_of_range_is_named(seed: int) -> None:
    with pytest.raises(ValueError, match=rf"^env\.seed: from 0 to 4294967295, got {seed}$"):
        ManagerRng(seed)
    with pytest.raises(ValueError, match=r"^play\.seed: from 0"):
        ManagerRng(seed, path="play.seed")


def test_a_device_without_a_generator_of_its_own_is_refused() -> None:
    with pytest.raises(UnsupportedSamplingError, match="samples on cpu or cuda, not on meta"):
        ManagerRng(0, "meta")


def test_the_extremes_of_the_seed_range_differ() -> None:
    streams = {ManagerRng(seed).uniform((1,)).item() for seed in (0, 1, 2**31, SEED_LIMIT - 1)}
    assert len(streams) == 4


@given(st.integers(0, SEED_LIMIT - 1), st.integers(1, 50))
def test_a_saved_state_goes_on_with_the_same_numbers(seed: int, drawn: int) -> None:
    rng = ManagerRng(seed)
    rng.normal((drawn,))
    state = rng.get_state()
    assert state.dtype == torch.uint8
    assert state.is_cpu

    def draw(source: ManagerRng) -> list[torch.Tensor]:
        return [
            source.uniform((3,), -2, 5),
            source.normal((7,), 1.0, 3.0),
            source.integers((4,), -3, 9),
            source.permutation(6),
        ]

    expected = draw(rng)
    other = ManagerRng((seed + 1) % SEED_LIMIT)
    other.set_state(state)
    for value, wanted in zip(draw(other), expected, strict=True):
        assert torch.equal(value, wanted)


def test_a_saved_state_is_a_copy() -> None:
    rng = ManagerRng(0)
    state = rng.get_state()
    before = state.clone()
    rng.uniform((100,))
    assert torch.equal(state, before)


@pytest.mark.parametrize(
    "state",
    [
        torch.zeros(3, dtype=torch.uint8),
        torch.zeros(5056),
        torch.zeros(5056, dtype=torch.uint8),
    ],
    ids=["short", "float", "garbage"],
)
def test_what_is_no_state_is_refused(state: torch.Tensor) -> None:
    rng = ManagerRng(0)
    with pytest.raises(ValueError, match="generator state"):
        rng.set_state(state)
    assert torch.equal(rng.uniform((4,)), ManagerRng(0).uniform((4,)))  # nothing was changed


def test_samples_have_the_asked_bounds_shape_and_dtype() -> None:
    rng = ManagerRng(0)
    uniform = rng.uniform((1000, 3), -2.0, 5.0)
    assert uniform.shape == (1000, 3)
    assert uniform.dtype == torch.float64
    assert -2.0 <= uniform.min() < -1.9
    assert 4.9 < uniform.max() < 5.0
    assert rng.uniform((2,), dtype=torch.float32).dtype == torch.float32
    normal = rng.normal((10_000,), mean=3.0, std=0.5)
    assert math.isclose(normal.mean().item(), 3.0, abs_tol=0.03)
    assert math.isclose(normal.std().item(), 0.5, rel_tol=0.05)
    integers = rng.integers((1000,), -1, 2)
    assert integers.dtype == torch.int64
    assert set(integers.tolist()) == {-1, 0, 1}
    assert sorted(rng.permutation(9).tolist()) == list(range(9))
    assert rng.integers((2,), np.int64(4), np.int64(5)).tolist() == [4, 4]  # NumPy's are numbers
    assert rng.uniform((2,), np.float32(4), np.float64(4)).tolist() == [4.0, 4.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rng: rng.uniform((1,), 1.0, 0.0), "low <= high"),
        (lambda rng: rng.uniform((1,), math.nan, 0.0), "low is one finite number, got nan"),
        (lambda rng: rng.uniform((1,), 0.0, math.inf), "high is one finite number, got inf"),
        (lambda rng: rng.uniform((2,), torch.zeros(2)), r"low is one finite number, got tensor"),
        (lambda rng: rng.uniform((1,), False), "low is one finite number, got False"),
        (lambda rng: rng.normal((1,), [0.0]), r"mean is one finite number, got \[0.0\]"),
        (lambda rng: rng.uniform((1,), dtype=torch.int64), "floating point"),
        (lambda rng: rng.normal((1,), std=-1.0), "std >= 0"),
        (lambda rng: rng.normal((1,), dtype=torch.bool), "floating point"),
        (lambda rng: rng.normal((1,), std=math.inf), "std is one finite number"),
        (lambda rng: rng.integers((1,), 3, 3), "low < high"),
        (lambda rng: rng.integers((1,), 0, 3.0), r"high is an integer, got 3\.0"),
        (lambda rng: rng.integers((1,), True, 3), "low is an integer, got True"),
        (lambda rng: rng.permutation(-1), "count >= 0, got -1"),
        (lambda rng: rng.permutation([1, 2]), r"count is an integer, got \[1, 2\]"),
        (lambda rng: rng.choice([1, 2]), "does not sample 'choice': uniform, normal"),
        (lambda rng: rng.standard_normal(3), "does not sample 'standard_normal'"),
        (lambda rng: rng.gamma(2.0), "does not sample 'gamma'"),
    ],
)
def test_unsupported_sampling_is_refused(call: Any, message: str) -> None:
    with pytest.raises(UnsupportedSamplingError, match=message):
        call(ManagerRng(0))


def test_attribute_probes_still_work() -> None:
    rng = ManagerRng(0)
    assert not hasattr(rng, "gamma")
    assert torch.equal(copy.deepcopy(rng).uniform((3,)), rng.uniform((3,)))


def test_no_other_generator_gives_or_takes_a_number() -> None:
    """Neither Torch's, Python's nor NumPy's global one."""
    before = torch.get_rng_state(), random.getstate(), numpy_state()
    rng = ManagerRng(3)
    rng.uniform((9,))
    rng.normal((9,))
    rng.integers((9,), 0, 5)
    rng.permutation(9)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert numpy_state() == before[2]
    torch.manual_seed(1)
    other = ManagerRng(3)
    torch.rand(5)
    assert torch.equal(other.uniform((9,)), ManagerRng(3).uniform((9,)))


@pytest.mark.gpu
def test_a_generator_on_a_gpu_samples_there_and_goes_on_from_a_saved_state() -> None:
    rng = ManagerRng(5, "cuda")
    assert rng.device == torch.device("cuda", torch.cuda.current_device())
    rng.normal((7,))
    state = rng.get_state()
    assert state.is_cpu

    def draw(source: ManagerRng) -> list[torch.Tensor]:
        return [source.uniform((5,)), source.integers((5,), 0, 9), source.permutation(6)]

    expected = draw(rng)
    assert {value.device for value in expected} == {rng.device}
    other = ManagerRng(6, "cuda")
    other.set_state(state)
    for drawn, wanted in zip(draw(other), expected, strict=True):
        assert torch.equal(drawn, wanted)
    with pytest.raises(ValueError, match="generator state on cuda"):
        other.set_state(ManagerRng(0).get_state())
