"""Memory that a run holds on GPUs, by process where the driver knows ours."""

from __future__ import annotations

import ctypes

import pytest
from tests.support.nvml import StandInDevice, StandInNvml

from drivetrain_trainer.hardware.gpu_memory import GpuMemory
from drivetrain_trainer.hardware.nvml import Nvml


def driver(processes: dict[int, int] | None) -> StandInNvml:
    """Two devices of a driver that knows processes, or does not."""
    second: dict[int, int] | None = None if processes is None else {}
    return StandInNvml(
        [StandInDevice(used=1000, processes=processes), StandInDevice(used=2000, processes=second)]
    )


def test_the_runs_own_gpu_memory_counts_where_the_driver_knows_it() -> None:
    library = driver({11: 300, 12: 50, 99: 7})
    gpu = GpuMemory(Nvml(library))
    assert gpu.used([11, 12]) == 350
    library.devices[0].processes = {99: 7}
    assert gpu.used([11, 12]) == 0


@pytest.mark.parametrize("processes", [{99: 7}, None, {11: ctypes.c_ulonglong(-1).value}])
def test_else_all_that_the_devices_have_in_use(processes: dict[int, int] | None) -> None:
    assert GpuMemory(Nvml(driver(processes))).used([11]) == 3000


def test_a_device_that_does_not_tell_its_memory_makes_the_sum_unknown() -> None:
    library = StandInNvml([StandInDevice(used=1000), StandInDevice()])
    assert GpuMemory(Nvml(library)).used([11]) is None


@pytest.mark.parametrize(
    "library",
    [
        None,
        StandInNvml([StandInDevice(used=1)], starts=False),
        StandInNvml([StandInDevice(used=1, gone=True)]),
        StandInNvml(),
    ],
)
def test_without_a_driver_or_a_device_there_is_nothing_to_watch(
    monkeypatch: pytest.MonkeyPatch, library: StandInNvml | None
) -> None:
    def load(name: str) -> StandInNvml:
        if library is None:
            raise OSError(name)
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert GpuMemory.here() is None


def test_the_driver_stays_open_while_it_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandInNvml([StandInDevice(used=7)])
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    found = GpuMemory.here()
    assert found is not None
    assert (found.used([1]), library.open) == (7, 1)
