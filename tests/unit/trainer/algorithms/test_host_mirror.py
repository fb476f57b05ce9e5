from __future__ import annotations

import pytest
import torch

from drivetrain_trainer.algorithms.host_mirror import HostMirror


def test_on_a_cpu_the_latest_is_there_at_once() -> None:
    mirror = HostMirror(2, torch.device("cpu"))
    assert mirror.read() == [0.0, 0.0]
    mirror.publish(torch.tensor([1.0, 2.0]))
    mirror.publish(torch.tensor([3.0, float("inf")]))
    assert mirror.read() == [3.0, float("inf")]


@pytest.mark.gpu
def test_on_cuda_the_one_before_is_there() -> None:
    mirror = HostMirror(1, torch.device("cuda"))
    seen = []
    for value in range(1, 5):
        mirror.publish(torch.full((1,), float(value), device="cuda"))
        seen += mirror.read()
    assert seen == [0.0, 1.0, 2.0, 3.0]
