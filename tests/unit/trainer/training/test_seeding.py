"""Which global generators a rank seeds."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from drivetrain_trainer.training.assembly import seed_globals
from drivetrain_trainer.training.inputs import RankInput


def draws(seed: int, rank: int) -> tuple[float, float]:
    """What Python's and Torch's generators give after a rank of that seed was seeded."""
    given: Any = SimpleNamespace(algo_seed=seed)
    seed_globals(cast("RankInput", given), rank)
    return random.random(), float(torch.rand(()))


def test_pythons_and_torchs_are_seeded_and_numpys_is_left_alone() -> None:
    before = random.getstate(), torch.get_rng_state()
    numpys: Any = np.random.get_state()  # noqa: NPY002 - the global one is what must not be touched
    try:
        assert draws(1, 0) == draws(1, 0)
        for one in (draws(2, 0), draws(1, 1)):
            assert all(a != b for a, b in zip(one, draws(1, 0), strict=True))
    finally:
        random.setstate(before[0])
        torch.set_rng_state(before[1])
    after: Any = np.random.get_state()  # noqa: NPY002 - as above
    assert (after[1] == numpys[1]).all()
    assert after[2:] == numpys[2:]
