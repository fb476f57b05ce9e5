"""Free memory of devices, by what their drivers tell."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from drivetrain_api.device_memory import roomiest_device

GIB = 1 << 30
ABSENT = "libno-such-driver.so"


class StandInNvml:
    """NVML of devices with so much free memory each; None for one that does not answer."""

    def __init__(self, *free: int | None, starts: bool = True, counts: bool = True) -> None:
        self._free = free
        self._starts = starts
        self._counts = counts
        self.open = 0

    def nvmlInit_v2(self) -> int:  # noqa: N802 - NVML's own names
        self.open += self._starts
        return 0 if self._starts else 9

    def nvmlShutdown(self) -> int:  # noqa: N802
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self._free)
        return 0 if self._counts else 3

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:  # noqa: N802
        handle._obj.value = index + 1
        return 0 if self._free[index] is not None else 15

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:  # noqa: N802
        memory._obj.free = self._free[handle.value - 1]
        return 0


def asked(monkeypatch: pytest.MonkeyPatch, nvml: StandInNvml) -> int | None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: nvml)
    found = roomiest_device(Path("/nowhere"))
    return None if found is None else found.bytes


def test_the_roomiest_of_nvidias_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = StandInNvml(3 * GIB, None, 70 * GIB)
    assert asked(monkeypatch, nvml) == 70 * GIB
    assert nvml.open == 0


@pytest.mark.parametrize(
    "nvml", [StandInNvml(GIB, starts=False), StandInNvml(GIB, counts=False), StandInNvml()]
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
