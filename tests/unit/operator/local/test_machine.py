from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from drivetrain_operator.local.machine import cuda_devices, shared_memory_shortage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def two_gpus(tmp_path: Path) -> Path:
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / name).mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / "dev" / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("environment", "visible"),
    [
        ({}, ("0", "1")),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ("1",)),
        ({"CUDA_VISIBLE_DEVICES": " 1 , 0"}, ("1", "0")),
        ({"CUDA_VISIBLE_DEVICES": ""}, ()),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ()),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8a56"}, ("GPU-8a56",)),
    ],
)
def test_devices_are_the_drivers_and_the_environments(
    two_gpus: Path, environment: dict[str, str], visible: tuple[str, ...]
) -> None:
    assert cuda_devices(environment, two_gpus).visible == visible


def test_no_driver_means_no_device_whatever_the_environment_says(tmp_path: Path) -> None:
    found = cuda_devices({"CUDA_VISIBLE_DEVICES": "0"}, tmp_path)
    assert found.visible == ()
    assert found.searched == "/proc/driver/nvidia/gpus and /dev/nvidia* show no device(s)"


def test_what_hides_devices_is_said(two_gpus: Path) -> None:
    words = cuda_devices({"CUDA_VISIBLE_DEVICES": ""}, two_gpus).searched
    assert words.endswith("show 2 device(s); CUDA_VISIBLE_DEVICES=''")


@pytest.mark.parametrize(
    ("free", "words"), [(500, None), (1, "/dev/shm is full: 4096 of 4096000 bytes are free")]
)
def test_a_full_shared_memory_is_said(
    monkeypatch: pytest.MonkeyPatch, free: int, words: str | None
) -> None:
    facts = SimpleNamespace(f_blocks=1000, f_bavail=free, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: facts)
    assert shared_memory_shortage() == words


def test_a_missing_shared_memory_is_said(tmp_path: Path) -> None:
    assert shared_memory_shortage(tmp_path / "shm") == f"{tmp_path}/shm is missing"
