"""What a persistent backend must do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from drivetrain_trainer.telemetry.record import Record


class Backend(Protocol):
    """A sink of reduced records; every method runs on the writer's thread alone.

    A method may block or raise: the writer keeps either from reaching training.
    """

    @property
    def name(self) -> str:
        """Name for warnings and for the run's summary, such as ``tensorboard``."""

    def open(self) -> None:
        """Acquire files or connections; called once, before the first write."""

    def write(self, record: Record) -> None:
        """Persist every value of the record at its step."""

    def flush(self) -> None:
        """Hand what was written to the operating system or the service."""

    def close(self) -> None:
        """Flush and release; called once, and only if `open` succeeded."""
