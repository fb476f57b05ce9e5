from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_run import Ranks

from drivetrain_api.errors import SpecError
from drivetrain_trainer.runtime.devices import DeviceInventory
from drivetrain_trainer.training.devices import machine_inventory, rank_devices
from drivetrain_trainer.training.inputs import RankInput


@pytest.fixture
def given(ranks: Ranks) -> RankInput:
    attempt = ranks.attempt()
    attempt.collector.kill()
    return attempt.given


def test_the_machine_is_asked_of_torch() -> None:
    inventory = machine_inventory()
    assert inventory.cuda_devices == torch.cuda.device_count()
    assert inventory.hip == (torch.version.hip is not None)


def test_a_rank_resolves_by_what_its_simulator_declares(given: RankInput) -> None:
    devices = rank_devices(given, 1, DeviceInventory(2))
    assert devices.learner == devices.collector_tensor == "cuda:1"
    assert devices.backend is None


def test_a_task_with_a_backend_that_does_not_load_is_refused_by_name(given: RankInput) -> None:
    broken = replace(given, task=replace(given.task, backend="no_such_module:Backend"))
    with pytest.raises(SpecError, match="no_such_module"):
        rank_devices(broken, 0, DeviceInventory(0))
