from __future__ import annotations

import pytest
import torch

from drivetrain_trainer.envs.errors import EnvError
from drivetrain_trainer.envs.rng import ManagerRng
from drivetrain_trainer.envs.terms.resets import sample_until


def test_only_refused_rows_are_redrawn() -> None:
    rng = ManagerRng(0)
    asked: list[int] = []

    def sample(count: int) -> torch.Tensor:
        asked.append(count)
        return rng.uniform((count, 1))

    rows = sample_until(1000, sample, lambda rows: rows[:, 0] < 0.25)
    assert rows.shape == (1000, 1)
    assert rows.max() < 0.25
    assert asked[0] == 1000
    assert asked[1] == pytest.approx(750, abs=60)
    assert asked == sorted(asked, reverse=True)


def test_nothing_acceptable_is_an_error_not_a_hang() -> None:
    rng = ManagerRng(0)
    with pytest.raises(EnvError, match="no sample was accepted"):
        sample_until(1, lambda n: rng.uniform((n, 1)), lambda rows: rows[:, 0] > 2)
