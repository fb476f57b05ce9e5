"""Facts of the NVIDIA GPUs that a process may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_api.machine import VISIBLE
from drivetrain_api.timings.hardware import GpuFacts
from drivetrain_trainer.hardware import nvml

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRANSFERS_PER_CLOCK: Final = 2
"""Double data rate: all memory of these GPUs (GDDR, HBM) moves data on both edges of the clock
that NVML tells."""
_BITS_PER_BYTE: Final = 8


def gpu_facts(environment: Mapping[str, str], library: str = nvml.LIBRARY) -> tuple[GpuFacts, ...]:
    """One entry for each visible GPU; what NVML does not tell of it is missing.

    ``CUDA_VISIBLE_DEVICES`` chooses by UUID, or its start, or by index. CUDA numbers devices
    from the fastest, NVML by the bus; where a machine mixes models, set
    ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` (or UUIDs) so that both mean the same.

    Args:
        environment: Of the process.
        library: NVIDIA's management library.
    """
    with nvml.opened(library) as driver:
        if driver is None:
            return ()
        devices = _visible(driver, environment.get(VISIBLE))
        return tuple(GpuFacts() if device is None else _facts(device) for device in devices)


def peak_memory_bandwidth(bus_width: int, memory_clock: int) -> float:
    """Theoretical peak in GB/s (10^9 bytes a second): clock * width in bytes * 2.

    The factor is that of double data rate memory. Source: CUDA C++ Best Practices Guide,
    "Theoretical Bandwidth Calculation".

    Args:
        bus_width: Bits.
        memory_clock: MHz.
    """
    bytes_per_second = memory_clock * 1e6 * bus_width / _BITS_PER_BYTE * _TRANSFERS_PER_CLOCK
    return round(bytes_per_second / 1e9, 1)


def _facts(device: nvml.Device) -> GpuFacts:
    width, clock = device.memory_bus_width(), device.max_memory_clock()
    return GpuFacts(
        model=device.name(),
        usable_vram_bytes=device.usable_bytes(),
        memory_bus_width_bits=width or None,
        max_memory_clock_mhz=clock or None,
        peak_memory_bandwidth_gb_s=peak_memory_bandwidth(width, clock) if width and clock else None,
    )


def _visible(driver: nvml.Nvml, chosen: str | None) -> list[nvml.Device | None]:
    devices = driver.devices()
    if chosen is None:
        return devices
    found = []
    for key in (part.strip() for part in chosen.split(",")):
        matching = _matching(driver, devices, key)
        if not matching:
            break  # CUDA shows nothing from the first key on that it does not know
        found.append(matching[0])
    return found


def _matching(
    driver: nvml.Nvml, devices: list[nvml.Device | None], key: str
) -> list[nvml.Device | None]:
    if key.isascii() and key.isdigit():
        return devices[int(key) :][:1]
    exact = driver.by_uuid(key)
    if exact is not None or not key:
        return [exact] if exact is not None else []
    return [
        device for device in devices if device is not None and (device.uuid() or "").startswith(key)
    ]
