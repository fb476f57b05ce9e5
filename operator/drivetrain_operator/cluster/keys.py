"""What runs are called in queues, indexes and logs."""

from __future__ import annotations

from typing import NamedTuple


class RunKey(NamedTuple):
    """A TrainingRun by namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """As kubectl and logs write it."""
        return f"{self.namespace}/{self.name}"
