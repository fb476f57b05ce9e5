from __future__ import annotations

import pytest

from drivetrain_api.errors import SpecError
from drivetrain_api.training import CollectorTensorDevice, TrainingConfig
from drivetrain_trainer.training.devices import DeviceInventory, resolve_devices


@pytest.mark.parametrize(
    ("asked", "cuda_devices", "local_rank", "resolved"),
    [
        ("auto", 0, 0, "cpu"),
        ("cpu", 4, 1, "cpu"),
        ("auto", 4, 3, "cuda:3"),
        ("auto", 2, 3, "cuda:1"),
        ("cuda", 2, 1, "cuda:1"),
        ("cuda:1", 2, 0, "cuda:1"),
    ],
)
def test_learner_device(asked: str, cuda_devices: int, local_rank: int, resolved: str) -> None:
    devices = resolve_devices(
        TrainingConfig(device=asked), local_rank, DeviceInventory(cuda_devices)
    )
    assert devices.learner == resolved
    assert devices.evidence()["learner"] == {"configured": asked, "resolved": resolved}


@pytest.mark.parametrize(
    ("training", "cuda_devices", "path", "words"),
    [
        (TrainingConfig(device="cuda"), 0, "training.device", "no CUDA device"),
        (TrainingConfig(device="cuda:2"), 2, "training.device", "cuda:0 to cuda:1"),
        (
            TrainingConfig(device="cpu", collector_tensor_device=CollectorTensorDevice.CUDA),
            2,
            "training.collector_tensor_device",
            "needs a CUDA learner",
        ),
    ],
)
def test_a_device_that_is_not_there_is_refused_by_name(
    training: TrainingConfig, cuda_devices: int, path: str, words: str
) -> None:
    with pytest.raises(SpecError) as refused:
        resolve_devices(training, 0, DeviceInventory(cuda_devices))
    (violation,) = refused.value.violations
    assert violation.path == path
    assert words in violation.message
