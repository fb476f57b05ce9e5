"""The reducer of a single rank; several ranks are in `test_ranks`."""

from __future__ import annotations

import math

import pytest
import torch

from drivetrain_trainer.algorithms.distributed import GradientReducer, broadcast_from_first

CPU = torch.device("cpu")


def test_alone_the_gradient_stays_where_it_was_written() -> None:
    reducer = GradientReducer(4, device=CPU, statistics=2)
    address = reducer.gradient.data_ptr()
    reducer.gradient.copy_(torch.tensor([3.0, 0.0, 4.0, 0.0]))
    reducer.reduce(torch.tensor(7.0))
    assert reducer.gradient.tolist() == [3.0, 0.0, 4.0, 0.0]
    assert reducer.gradient.data_ptr() == address
    assert float(reducer.norm()) == 5.0
    assert float(reducer.norm(start=1)) == 4.0
    assert reducer.timer.take() == (0.0, 0)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_broken_loss_or_gradient_shows_in_the_norm_once(broken: float) -> None:
    reducer = GradientReducer(2, device=CPU)
    reducer.reduce(torch.tensor(broken))
    assert not reducer.norm().isfinite()
    reducer.reduce(torch.tensor(1.0))
    assert reducer.norm().isfinite()
    reducer.gradient[1] = broken
    reducer.reduce(torch.tensor(1.0))
    assert not reducer.norm().isfinite()


def test_alone_attachments_come_back() -> None:
    reducer = GradientReducer(2, device=CPU, statistics=3)
    given = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert reducer.statistics() is None
    reducer.attach(stop_requested=True, statistics=given)
    reducer.exchange()
    assert reducer.stop.tolist() == [1.0]
    gathered = reducer.statistics()
    assert gathered is not None
    assert torch.equal(gathered, given.unsqueeze(0))
    reducer.attach(stop_requested=False)
    assert reducer.stop.tolist() == [0.0]
    assert reducer.statistics() is None


def test_alone_there_is_nobody_to_hear_from() -> None:
    values = torch.ones(2)
    broadcast_from_first([values], None)
    assert values.tolist() == [1.0, 1.0]
