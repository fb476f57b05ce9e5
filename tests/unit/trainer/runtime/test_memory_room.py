"""Room for a rank's tensors: on the host, on a device, and where ranks share one."""

from __future__ import annotations

import dataclasses

import pytest

from drivetrain_api.budget import MIB, TensorSizes, memory_budget
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.memory import AvailableMemory
from drivetrain_api.training import TrainingConfig
from drivetrain_api.trainingrun import TopologyConfig, TrainingRunSpec
from drivetrain_trainer.runtime.devices import DeviceInventory, learner_devices
from drivetrain_trainer.runtime.memory_room import MemoryRoom

# 1,000,000 rows of 2 x 5 + 3 + 3 = 16 values: 61.04 MiB, and 64.2 MiB of margins and the rest.
SIZES = TensorSizes(
    num_envs=8,
    batch_size=8,
    updates_per_step=1,
    observation_dim=5,
    inference_observation_dim=5,
    action_dim=3,
    inference_slot_capacity=1,
    replay_ingress_depth=2,
    replay_ingress_slot_rows=8,
    replay_rows=1_000_000,
    on_device=False,
)
ON_DEVICE = dataclasses.replace(SIZES, on_device=True, ring_on_device=True)


def room(host: int, device: int | None = None, processes: int = 0) -> MemoryRoom:
    free = None if device is None else AvailableMemory(device * MIB, "a driver")
    return MemoryRoom(AvailableMemory(host * MIB, "a cgroup"), free, processes * MIB)


def refusal(found: MemoryRoom, sizes: TensorSizes, *learners: str) -> Violation:
    with pytest.raises(SpecError) as caught:
        found.check(memory_budget(sizes), learners, 0)
    (violation,) = caught.value.violations
    return violation


def test_ranks_of_a_pod_share_its_memory_after_the_processes() -> None:
    budget = memory_budget(SIZES)
    each = -(-budget.required * 10 // 8) // MIB + 1
    room(each).check(budget, ("cpu",), 0)
    room(2 * each + 700, processes=700).check(budget, ("cpu", "cpu"), 1)
    violation = refusal(room(2 * each + 650, processes=700), SIZES, "cpu", "cpu")
    assert violation.path == "algo.replay_rows"
    assert " / 2 ranks" in violation.message
    assert violation.message.endswith(
        f"; available is {2 * each + 650}.0 MiB (a cgroup) less 700 MiB for the processes "
        "themselves"
    )


def test_ranks_that_share_a_device_share_its_memory_and_others_do_not() -> None:
    budget = memory_budget(ON_DEVICE)
    each = -(-budget.required * 10 // 8) // MIB + 1
    room(1000, each).check(budget, ("cuda:0", "cuda:1"), 1)
    room(1000, 2 * each).check(budget, ("cuda:0", "cuda:1", "cuda:0"), 0)
    violation = refusal(room(1000, 2 * each - 3), ON_DEVICE, "cuda:0", "cuda:1", "cuda:0")
    assert violation.path == "algo.replay_rows"
    assert f"{2 * each - 3}.0 MiB free on cuda:0 / 2 ranks" in violation.message


def test_a_device_does_not_count_against_the_host_and_what_is_shared_does() -> None:
    room(1, 1000).check(memory_budget(ON_DEVICE), ("cuda:0",), 0)
    wide = dataclasses.replace(ON_DEVICE, replay_ingress_slot_rows=100_000)
    violation = refusal(room(10, 1000), wide, "cuda:0")
    assert violation.path == "training.replay_ingress_slot_rows"


def test_where_no_driver_tells_the_device_is_left_to_its_rank() -> None:
    room(1000).check(memory_budget(ON_DEVICE), ("cuda:0",), 0)


@pytest.mark.parametrize(
    ("asked", "gpus", "expected"),
    [
        ("auto", 0, ("cpu", "cpu", "cpu")),
        ("auto", 2, ("cuda:0", "cuda:1", "cuda:0")),
        ("cuda:1", 2, ("cuda:1", "cuda:1", "cuda:1")),
        ("cpu", 2, ("cpu", "cpu", "cpu")),
    ],
)
def test_local_ranks_take_devices_in_turn(asked: str, gpus: int, expected: tuple[str, ...]) -> None:
    spec = TrainingRunSpec(
        algo={"name": "sac"},
        task={"name": "toy"},
        training=TrainingConfig(device=asked),
        topology=TopologyConfig(ranks_per_node=3),
    )
    assert learner_devices(spec, DeviceInventory(gpus)) == expected
