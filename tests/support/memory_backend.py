"""A metric backend that keeps the records it is given."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from drivetrain_trainer.telemetry.backends.base import BackendCapabilities
from drivetrain_trainer.telemetry.record import Record


class MemoryBackend:
    """In memory, of any name and capabilities."""

    details: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self, name: str = "memory", capabilities: BackendCapabilities | None = None
    ) -> None:
        self.name = name
        self.capabilities = capabilities or BackendCapabilities()
        self.records: list[Record] = []
        self.closed = False

    def open(self) -> None:
        """Nothing to open."""

    def write(self, record: Record) -> None:
        """Keep it."""
        self.records.append(record)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Say that it was closed."""
        self.closed = True
