from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from drivetrain_trainer.algorithms.nonfinite import describe_batch, describe_tensors
from drivetrain_trainer.runtime.replay_layout import Batch


def test_a_sound_batch_has_nothing_to_tell(make_batch: Callable[..., Batch]) -> None:
    assert describe_batch(make_batch(updates=2)) == []


@pytest.mark.parametrize("name", ["observation", "action", "reward", "done", "next_observation"])
def test_a_poisoned_field_is_named_with_its_rows(
    make_batch: Callable[..., Batch], name: str
) -> None:
    batch = make_batch(updates=2, batch=8)
    field = getattr(batch, name)
    field[1, 3] = float("nan")
    field[0, 6] = float("inf")
    assert describe_batch(batch) == [f"batch {name} in 2 rows (row 6 of update 0, 3 of update 1)"]


def test_only_the_first_rows_are_listed(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch(batch=8)
    batch.reward[0] = float("nan")
    (finding,) = describe_batch(batch)
    assert finding == (
        "batch reward in 8 rows (row 0 of update 0, 1 of update 0, 2 of update 0, ...)"
    )


def test_tensors_are_named() -> None:
    named = [("sound", torch.ones(3)), ("broken", torch.tensor([[1.0, 2.0], [3.0, math.nan]]))]
    assert describe_tensors(named) == ["parameter broken[1, 1] is nan (1 of 4)"]
    assert describe_tensors([("alpha", torch.tensor(-math.inf))], "gradient of") == [
        "gradient of alpha is -inf (1 of 1)"
    ]


def test_only_the_first_tensors_are_listed() -> None:
    named = [(str(number), torch.full((2,), math.nan)) for number in range(5)]
    assert describe_tensors(named) == [
        "parameter 0[0] is nan (2 of 2)",
        "parameter 1[0] is nan (2 of 2)",
        "parameter 2[0] is nan (2 of 2)",
        "and 2 more of them",
    ]
