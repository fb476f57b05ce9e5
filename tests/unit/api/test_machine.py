"""Devices and /dev/shm as the kernel shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain_api.machine import cuda_devices, free_shared_memory


def machine(root: Path, *nodes: str) -> Path:
    for node in nodes:
        (root / node).parent.mkdir(parents=True, exist_ok=True)
        (root / node).touch()
    return root


@pytest.mark.parametrize(
    ("nodes", "environment", "visible"),
    [
        ((), {}, ()),
        ((), {"CUDA_VISIBLE_DEVICES": "0,1"}, ()),
        (("dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm"), {}, ("0", "1")),
        (("proc/driver/nvidia/gpus/0000:01:00.0",), {}, ("0",)),
        (("dev/dxg",), {}, ("0",)),
        (("dev/nvidia0", "dev/nvidia1"), {"CUDA_VISIBLE_DEVICES": " 1 , "}, ("1",)),
        (("dev/nvidia0",), {"CUDA_VISIBLE_DEVICES": ""}, ()),
        (("dev/nvidia0",), {"CUDA_VISIBLE_DEVICES": "-1"}, ()),
        (("dev/nvidia0",), {"CUDA_VISIBLE_DEVICES": "GPU-5e"}, ("GPU-5e",)),
        (("dev/kfd", "dev/dri/renderD128", "dev/dri/renderD129", "dev/dri/card0"), {}, ("0", "1")),
        (("dev/kfd", "dev/dri/renderD128"), {"HIP_VISIBLE_DEVICES": ""}, ()),
        (
            ("dev/kfd", "dev/dri/renderD128", "dev/dri/renderD129"),
            {"CUDA_VISIBLE_DEVICES": "1"},
            ("1",),
        ),
        (("dev/dri/renderD128",), {}, ()),
        (("dev/kfd", "dev/nvidia0", "dev/dri/renderD128", "dev/dri/renderD129"), {}, ("0",)),
    ],
)
def test_the_devices_that_a_process_would_see(
    tmp_path: Path, nodes: tuple[str, ...], environment: dict[str, str], visible: tuple[str, ...]
) -> None:
    assert cuda_devices(environment, machine(tmp_path, *nodes)).visible == visible


def test_whose_devices_they_are(tmp_path: Path) -> None:
    assert cuda_devices({}, machine(tmp_path, "dev/kfd", "dev/dri/renderD128")).hip
    assert not cuda_devices({}, machine(tmp_path, "dev/nvidia0")).hip


def test_what_was_found_is_told(tmp_path: Path) -> None:
    root = machine(tmp_path, "dev/nvidia0")
    found = cuda_devices({"CUDA_VISIBLE_DEVICES": ""}, root)
    assert "show 1 device(s)" in found.searched
    assert "CUDA_VISIBLE_DEVICES=''" in found.searched
    assert "show no device(s)" in cuda_devices({}, tmp_path / "empty").searched


def test_free_shared_memory(tmp_path: Path) -> None:
    assert free_shared_memory(tmp_path) > 0
    assert free_shared_memory(tmp_path / "absent") == 0
