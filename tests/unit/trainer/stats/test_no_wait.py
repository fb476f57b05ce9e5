"""Recording never looks at a value: on a device that would make the host wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from drivetrain_trainer.stats import DeviceMeans, StatsTracker
from drivetrain_trainer.stats.advantages import record_advantage_signs
from drivetrain_trainer.stats.log_probs import record_log_probs
from drivetrain_trainer.stats.moe_balance import MoeBalance, counts_of_indices, counts_of_map
from drivetrain_trainer.stats.staleness import record_staleness, shift_to_predicted
from drivetrain_trainer.training.schedule import Cursor
from drivetrain_trainer.training.staleness import ReplayAges


def log_probs() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    record_log_probs(
        StatsTracker(), learner=torch.randn(2, 3), behaviour=torch.randn(2, 3), mask=mask
    )


def advantages() -> None:
    record_advantage_signs(StatsTracker(), torch.randn(4), torch.ones(4, dtype=torch.bool))


def staleness() -> None:
    versions = shift_to_predicted(torch.zeros(2, 4, dtype=torch.int64))
    record_staleness(StatsTracker(), behaviour_version=versions, published_version=3)


def replay_ages() -> None:
    ages = torch.zeros(4, dtype=torch.int64)
    ReplayAges(2, 1, 3).record(StatsTracker(), ages, Cursor(tick=9, iteration=9))


def device_means() -> None:
    means = DeviceMeans(("a",), torch.device("cpu"))
    means.add((torch.randn(()),), skipped=torch.zeros((), dtype=torch.bool))
    means.hand_over(StatsTracker())


def moe_balance() -> None:
    balance = MoeBalance()
    balance.declare(0, experts=3)
    balance.add(0, counts_of_indices(torch.zeros(2, 2, dtype=torch.int64), 3))
    balance.add(0, counts_of_map(torch.ones(4, 3, dtype=torch.bool)))


@pytest.mark.parametrize(
    "record", [log_probs, advantages, staleness, replay_ages, device_means, moe_balance]
)
def test_records_leave_values_where_they_are(record: Callable[[], None]) -> None:
    with FakeTensorMode():  # tensors without values: whatever asks for one raises
        record()


def test_the_check_sees_a_value_that_is_read() -> None:
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        torch.ones(()).item()
