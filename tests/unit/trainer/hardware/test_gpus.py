"""NVIDIA GPUs by what NVML tells; what it does not tell is missing and nothing fails."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.nvml import StandInDevice, StandInNvml

from drivetrain_api.timings.hardware import GpuFacts
from drivetrain_trainer.hardware.gpus import gpu_facts, peak_memory_bandwidth
from drivetrain_trainer.hardware.record import read_hardware

MIB = 1 << 20
H100 = StandInDevice(
    name="NVIDIA H100 80GB HBM3",
    uuid="GPU-8f6fab12",
    total=81559 * MIB,
    reserved=551 * MIB,
    free=70000 * MIB,
    used=11559 * MIB,
    bus_width=5120,
    memory_clock=2619,
)
# 2619e6 Hz * 5120 bit / 8 bit * 2 = 3,352,320,000,000 bytes a second
H100_FACTS = GpuFacts(
    model="NVIDIA H100 80GB HBM3",
    usable_vram_bytes=81008 * MIB,
    memory_bus_width_bits=5120,
    max_memory_clock_mhz=2619,
    peak_memory_bandwidth_gb_s=3352.3,
)
T4 = StandInDevice(
    name="Tesla T4",
    uuid="GPU-1122aabb",
    total=15360 * MIB,
    reserved=449 * MIB,
    bus_width=256,
    memory_clock=5001,
)


def found(
    monkeypatch: pytest.MonkeyPatch, library: StandInNvml, environment: Mapping[str, str] = {}
) -> tuple[GpuFacts, ...]:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    facts = gpu_facts(environment)
    assert library.open == 0, "NVML was left open"
    return facts


def test_all_facts_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, StandInNvml([H100])) == (H100_FACTS,)


@pytest.mark.parametrize(
    ("bus_width", "memory_clock", "gigabytes"),
    [
        pytest.param(4096, 877, 898.0, id="V100, the example of NVIDIA's guide: 898"),
        pytest.param(256, 5001, 320.1, id="T4, data sheet: 320+"),
        pytest.param(384, 9751, 936.1, id="RTX 3090, data sheet: 936"),
        pytest.param(5120, 2619, 3352.3, id="H100, data sheet: 3.35 TB/s"),
    ],
)
def test_peak_bandwidth_is_clock_times_bytes_of_the_bus_times_two(
    bus_width: int, memory_clock: int, gigabytes: float
) -> None:
    assert peak_memory_bandwidth(bus_width, memory_clock) == gigabytes


@pytest.mark.parametrize(
    ("device", "missing"),
    [
        (replace(H100, name=None), {"model"}),
        (replace(H100, bus_width=None), {"memory_bus_width_bits", "peak_memory_bandwidth_gb_s"}),
        (replace(H100, bus_width=0), {"memory_bus_width_bits", "peak_memory_bandwidth_gb_s"}),
        (replace(H100, memory_clock=None), {"max_memory_clock_mhz", "peak_memory_bandwidth_gb_s"}),
        (replace(H100, total=None, free=None, used=None), {"usable_vram_bytes"}),
    ],
)
def test_a_fact_that_is_not_supported_is_missing_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch, device: StandInDevice, missing: set[str]
) -> None:
    (facts,) = found(monkeypatch, StandInNvml([device]))
    assert facts == H100_FACTS.model_copy(update=dict.fromkeys(missing))


def test_without_a_stated_reserve_all_memory_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    (facts,) = found(monkeypatch, StandInNvml([replace(H100, reserved=None)]))
    assert facts.usable_vram_bytes == 81559 * MIB


def test_an_older_library_lacks_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = frozenset({"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryBusWidth"})
    (facts,) = found(monkeypatch, StandInNvml([H100], without=newer))
    assert facts.usable_vram_bytes == 81559 * MIB
    assert facts.memory_bus_width_bits is None
    assert facts.model == "NVIDIA H100 80GB HBM3"


def test_a_device_that_is_gone_is_one_of_which_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = StandInNvml([replace(H100, gone=True), H100])
    assert found(monkeypatch, library) == (GpuFacts(), H100_FACTS)


@pytest.mark.parametrize(
    "library",
    [
        StandInNvml([H100], starts=False),
        StandInNvml([H100], counts=False),
        StandInNvml([H100], without=frozenset({"nvmlInit_v2"})),
        StandInNvml(),
    ],
)
def test_a_driver_that_does_not_answer_shows_no_gpu(
    monkeypatch: pytest.MonkeyPatch, library: StandInNvml
) -> None:
    assert found(monkeypatch, library) == ()


def test_without_nvml_there_is_a_record_without_gpus(tmp_path: Path) -> None:
    record = read_hardware(tmp_path, environment={}, affinity={0}, library="libno-driver.so")
    assert record.gpus == ()


@pytest.mark.parametrize(
    ("chosen", "models"),
    [
        ("0", ["NVIDIA H100 80GB HBM3"]),
        ("1,0", ["Tesla T4", "NVIDIA H100 80GB HBM3"]),
        ("GPU-1122aabb", ["Tesla T4"]),
        ("GPU-8f", ["NVIDIA H100 80GB HBM3"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["NVIDIA H100 80GB HBM3"]),
        ("2,0", []),
        ("GPU-unknown", []),
    ],
)
def test_only_visible_devices_are_recorded(
    monkeypatch: pytest.MonkeyPatch, chosen: str, models: list[str]
) -> None:
    facts = found(monkeypatch, StandInNvml([H100, T4]), {"CUDA_VISIBLE_DEVICES": chosen})
    assert [gpu.model for gpu in facts] == models


def test_a_slice_of_a_device_is_found_by_its_uuid_and_tells_what_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = StandInDevice(name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", uuid="MIG-77", total=9856 * MIB)
    facts = found(monkeypatch, StandInNvml([H100, part]), {"CUDA_VISIBLE_DEVICES": "MIG-77"})
    assert facts == (GpuFacts(model=part.name, usable_vram_bytes=9856 * MIB),)


@pytest.mark.gpu
def test_on_a_gpu_nvml_and_torch_agree() -> None:
    import torch  # noqa: PLC0415 - of this test alone

    facts = gpu_facts({})
    assert len(facts) >= torch.cuda.device_count() > 0
    properties = torch.cuda.get_device_properties(0)
    assert properties.name in {gpu.model for gpu in facts}
    for gpu in facts:
        assert gpu.usable_vram_bytes
        assert gpu.peak_memory_bandwidth_gb_s
        assert 100 < gpu.peak_memory_bandwidth_gb_s < 20_000
