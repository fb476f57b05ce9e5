"""Free memory of devices, by what their drivers tell."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from tests.support.nvml import StandInDevice, StandInNvml

from drivetrain_trainer.hardware.device_memory import roomiest_device

GIB = 1 << 30
ABSENT = "libno-such-driver.so"


def devices(*free: int | None) -> list[StandInDevice]:
    """Of so much free memory each; None is one that does not answer."""
    return [StandInDevice(free=one, gone=one is None) for one in free]


def asked(monkeypatch: pytest.MonkeyPatch, nvml: StandInNvml) -> int | None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: nvml)
    found = roomiest_device(Path("/nowhere"))
    return None if found is None else found.bytes


def test_the_roomiest_of_nvidias_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = StandInNvml(devices(3 * GIB, None, 70 * GIB))
    assert asked(monkeypatch, nvml) == 70 * GIB
    assert nvml.open == 0


@pytest.mark.parametrize(
    "nvml",
    [
        StandInNvml(devices(GIB), starts=False),
        StandInNvml(devices(GIB), counts=False),
        StandInNvml(),
        StandInNvml(devices(GIB), without=frozenset({"nvmlInit_v2"})),
    ],
)
def test_a_driver_that_does_not_answer_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, nvml: StandInNvml
) -> None:
    assert asked(monkeypatch, nvml) is None
    assert nvml.open == 0


def test_amds_driver_tells_in_files(tmp_path: Path) -> None:
    for card, (total, used) in {"card0": (16, 15), "card1": (16, 4)}.items():
        folder = tmp_path / "sys/class/drm" / card / "device"
        folder.mkdir(parents=True)
        (folder / "mem_info_vram_total").write_text(f"{total * GIB}\n")
        (folder / "mem_info_vram_used").write_text(f"{used * GIB}\n")
    broken = tmp_path / "sys/class/drm/card2/device"
    broken.mkdir(parents=True)
    (broken / "mem_info_vram_total").write_text("no number")
    found = roomiest_device(tmp_path, library=ABSENT)
    assert found is not None
    assert found.bytes == 12 * GIB
    assert found.source == "most free memory of 2 device(s)"


def test_without_a_driver_nothing_is_known(tmp_path: Path) -> None:
    assert roomiest_device(tmp_path, library=ABSENT) is None
