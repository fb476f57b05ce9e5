"""Random streams that depend on a counter alone, so that a resumed run continues them.

Each draw reseeds one generator from (seed, rank, stream, counter): what was drawn before,
or how often, plays no part.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import torch

_MASK: Final = 2**64 - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15


class Stream(IntEnum):
    """What the noise is for; no two streams share their values."""

    ACTION = 1
    """Exploration; the counter is the tick."""
    WARM_UP = 2
    """Uniform actions before learning; the counter is the tick."""
    UPDATE = 3
    """Actions inside losses; the counter is the iteration."""


class NoiseStreams:
    """One generator on a device, reseeded for every draw."""

    def __init__(self, seed: int, *, rank: int, device: torch.device) -> None:
        self._key = (seed, rank)
        self._generator = torch.Generator(device=device)

    def at(self, stream: Stream, counter: int) -> torch.Generator:
        """The generator at the beginning of `stream` at `counter`; valid until the next call."""
        self._generator.manual_seed(mix(*self._key, stream, counter))
        return self._generator


def mix(*parts: int) -> int:
    """A well-mixed 64-bit seed from integers (the finalizer of SplitMix64 after each).

    Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    state = 0
    for part in parts:
        state = _finalize((state + part + _GOLDEN) & _MASK)
    return state


def _finalize(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
