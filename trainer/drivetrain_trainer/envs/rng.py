"""The environments' random numbers: one seeded torch generator, saved and restored exactly."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Final, NoReturn

import torch
from torch import Tensor

SEED_LIMIT: Final = 2**32
"""Seeds are below this: torch's CPU generator drops a seed's higher bits in silence."""
DEVICES: Final = ("cpu", "cuda")
"""Kinds of device that have a generator whose state can be taken and put back."""

_SAMPLERS: Final = ("uniform", "normal", "integers", "permutation")


class UnsupportedSamplingError(ValueError):
    """A distribution, or an argument of one, that `ManagerRng` does not sample."""


class ManagerRng:
    """Every random number of an environment, from one explicit `torch.Generator`.

    Samples lie on the generator's device. The same seed gives the same numbers whatever
    the physics threads; there is no promise to reproduce NumPy's bit streams.
    """

    def __init__(
        self, seed: int, device: torch.device | str = "cpu", *, path: str = "env.seed"
    ) -> None:
        """A generator on `device`, seeded with an exact integer of 0 to 2**32 - 1.

        Args:
            seed: Of the generator.
            device: One of `DEVICES`.
            path: Where the seed was asked for; errors name it.

        Raises:
            TypeError: the seed is not exactly an `int` (a bool is not one).
            ValueError: the seed is out of range.
            UnsupportedSamplingError: a device of another kind.
        """
        if type(seed) is not int:
            raise TypeError(
                f"{path}: an exact integer from 0 to {SEED_LIMIT - 1}, got {seed!r}"
                f" ({type(seed).__name__})"
            )
        if not 0 <= seed < SEED_LIMIT:
            raise ValueError(f"{path}: from 0 to {SEED_LIMIT - 1}, got {seed}")
        wanted = torch.device(device)
        if wanted.type not in DEVICES:
            raise UnsupportedSamplingError(
                f"ManagerRng samples on {' or '.join(DEVICES)}, not on {wanted}"
            )
        self._generator = torch.Generator(device=wanted)
        self._generator.manual_seed(seed)
        self.device = self._generator.device
        """Where samples lie; with its index, whichever device is current later."""

    def uniform(
        self,
        shape: tuple[int, ...],
        low: float = 0.0,
        high: float = 1.0,
        *,
        dtype: torch.dtype = torch.float64,
    ) -> Tensor:
        """Samples from [low, high); `high` itself only where rounding to `dtype` makes it so.

        Raises:
            UnsupportedSamplingError: `low` above `high`, a bound that is no finite number
                (a bound for each element is not supported), or a dtype that is not floating.
        """
        _require_floating(dtype)
        _require_numbers(low=low, high=high)
        if not low <= high:
            raise UnsupportedSamplingError(f"uniform needs low <= high, got [{low}, {high})")
        unit = torch.rand(shape, generator=self._generator, dtype=dtype, device=self.device)
        return unit.mul_(high - low).add_(low)

    def normal(
        self,
        shape: tuple[int, ...],
        mean: float = 0.0,
        std: float = 1.0,
        *,
        dtype: torch.dtype = torch.float64,
    ) -> Tensor:
        """Samples from the normal distribution of `mean` and standard deviation `std`.

        Raises:
            UnsupportedSamplingError: a negative `std`, a parameter that is no finite number,
                or a dtype that is not floating.
        """
        _require_floating(dtype)
        _require_numbers(mean=mean, std=std)
        if not std >= 0:
            raise UnsupportedSamplingError(f"normal needs std >= 0, got {std}")
        unit = torch.randn(shape, generator=self._generator, dtype=dtype, device=self.device)
        return unit.mul_(std).add_(mean)

    def integers(self, shape: tuple[int, ...], low: int, high: int) -> Tensor:
        """int64 samples, each of low..high - 1 alike.

        Raises:
            UnsupportedSamplingError: `low` not below `high`, or a bound that is no integer.
        """
        _require_integers(low=low, high=high)
        if not low < high:
            raise UnsupportedSamplingError(f"integers needs low < high, got [{low}, {high})")
        return torch.randint(low, high, shape, generator=self._generator, device=self.device)

    def permutation(self, count: int) -> Tensor:
        """0..count - 1 in random order, int64 (count,).

        Raises:
            UnsupportedSamplingError: `count` is no integer of 0 or more (values to be shuffled
                are indexed with what this returns).
        """
        _require_integers(count=count)
        if count < 0:
            raise UnsupportedSamplingError(f"permutation needs count >= 0, got {count}")
        return torch.randperm(count, generator=self._generator, device=self.device)

    def get_state(self) -> Tensor:
        """The generator's whole state, a copy: uint8, on the CPU whatever the device."""
        return self._generator.get_state()

    def set_state(self, state: Tensor) -> None:
        """Go on exactly where `get_state` was taken; what is refused changes nothing.

        Raises:
            ValueError: `state` is no state of a generator on this kind of device.
        """
        expected = self._generator.get_state()
        if state.dtype != torch.uint8 or state.shape != expected.shape or not state.is_cpu:
            raise ValueError(
                f"a generator state on {self.device} is a CPU uint8 tensor of shape"
                f" {tuple(expected.shape)}, got {state.dtype} {tuple(state.shape)} on"
                f" {state.device}"
            )
        try:
            self._generator.set_state(state)
        except RuntimeError as error:
            raise ValueError(f"not a generator state: {error}") from error

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # copy and pickle probe for these
            raise AttributeError(name)
        raise _UnknownSamplerError(f"ManagerRng does not sample {name!r}: {', '.join(_SAMPLERS)}")


class _UnknownSamplerError(UnsupportedSamplingError, AttributeError):
    """An `AttributeError` as well, so that `hasattr` answers."""


def _require_floating(dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise UnsupportedSamplingError(f"samples are floating point, got {dtype}")


def _require_numbers(**values: object) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise UnsupportedSamplingError(f"{name} is one finite number, got {value!r}")


def _require_integers(**values: object) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise UnsupportedSamplingError(f"{name} is an integer, got {value!r}")
