"""Memory that a run holds on NVIDIA GPUs, asked of their driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from drivetrain_trainer.hardware import nvml

if TYPE_CHECKING:
    from collections.abc import Iterable


class GpuMemory:
    """The devices that this process sees.

    Where the driver's process ids are ours, the memory of the run's own processes counts.
    In a container they often are the host's: then it is all that the visible devices have in
    use, other programs' included.
    """

    def __init__(self, driver: nvml.Nvml) -> None:
        """Ask this driver from now on."""
        self.devices = [device for device in driver.devices() if device is not None]
        self._by_process = False

    @classmethod
    def here(cls) -> Self | None:
        """The machine's devices; None where there is no driver, or no device."""
        driver = nvml.initialised()
        found = None if driver is None else cls(driver)
        return found if found is not None and found.devices else None

    def used(self, pids: Iterable[int]) -> int | None:
        """Bytes in use by these processes, or by anyone where that cannot be told."""
        own = self._of_processes(set(pids))
        if own is None and self._by_process:
            return 0
        self._by_process = own is not None
        return own if own is not None else self._of_devices()

    def _of_processes(self, pids: set[int]) -> int | None:
        """None where none of them is known to the driver by its id."""
        total, known = 0, False
        for device in self.devices:
            table = device.processes()
            if table is None:
                return None
            own = [used for pid, used in table.items() if pid in pids]
            known, total = known or bool(own), total + sum(own)
        return total if known else None

    def _of_devices(self) -> int | None:
        total = 0
        for device in self.devices:
            memory = device.memory()
            if memory is None:
                return None
            total += memory.used
        return total
