"""Only what loads without running code goes into a checkpoint."""

from __future__ import annotations

import io
from collections import OrderedDict
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import pytest
import torch

from drivetrain_trainer.evidence.plain import to_plain


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


def through_a_file(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(to_plain(value), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (0.5, 0.5),
        ("text", "text"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (np.float64(0.25), 0.25),
        ([1, (2, "x")], [1, (2, "x")]),
        ({"a": {0: [None]}}, {"a": {0: [None]}}),
        (OrderedDict(a=1), {"a": 1}),
    ],
)
def test_scalars_and_containers_come_back_as_builtins(value: Any, expected: Any) -> None:
    found = through_a_file({"it": value})["it"]
    assert found == expected
    assert type(found) is type(expected)


def test_parameters_come_back_as_plain_tensors() -> None:
    module = torch.nn.Linear(3, 2)
    found = through_a_file(module.state_dict() | {"raw": module.weight})
    assert type(found["raw"]) is torch.Tensor
    assert not found["raw"].requires_grad
    assert torch.equal(found["weight"], module.weight)


def test_a_small_view_does_not_drag_its_whole_storage_along() -> None:
    ring = torch.arange(1_000_000, dtype=torch.float32)
    file = io.BytesIO()
    torch.save(to_plain({"row": ring[10:20]}), file)
    assert file.tell() < 10_000
    assert torch.equal(through_a_file({"row": ring[10:20]})["row"], ring[10:20])


def test_a_full_tensor_is_not_copied() -> None:
    ring = torch.zeros(1000)
    plain = to_plain({"ring": ring})
    assert isinstance(plain, dict)
    found = plain["ring"]
    assert isinstance(found, torch.Tensor)
    assert found.data_ptr() == ring.data_ptr()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, {2}]}, r"state\['a'\]\[1\]: a checkpoint cannot hold a set"),
        ({"a": np.zeros(2)}, r"state\['a'\]: a checkpoint cannot hold a ndarray"),
        ({"f": print}, r"cannot hold a builtin_function_or_method"),
        ({(1, 2): 3}, r"state: keys are text or integers; got \(1, 2\)"),
        ({True: 3}, r"keys are text or integers; got True"),
    ],
)
def test_anything_else_is_refused_by_place_and_type(value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        to_plain(value)
