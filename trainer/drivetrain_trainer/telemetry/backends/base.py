"""What a persistent backend must do, and what it is given.

A backend is an entry point of group ``drivetrain.loggers``: ``make(context) -> Backend``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivetrain_api.trainingrun import TrainingRunSpec
    from drivetrain_trainer.telemetry.facts import SystemFacts
    from drivetrain_trainer.telemetry.record import Record


@dataclass(frozen=True)
class BackendContext:
    """What `make` decides by; the same for every backend of a run."""

    directory: Path
    """The run directory."""
    spec: TrainingRunSpec
    """The composed spec."""
    facts: SystemFacts
    """Names and sizes."""
    start_env_steps: int
    """Environment steps that this attempt goes on from; 0 for a new run."""
    attempt: int
    """Number of the attempt, from 1."""
    run_config: Mapping[str, object]
    """``run_config.json`` as it was written: plain JSON values, without secrets."""


@dataclass(frozen=True)
class BackendCapabilities:
    """What a backend can hold beside one scalar a tag, and how long its end may take."""

    tables: bool = False
    """Takes tables (`Record.tables`). One that does not never sees any."""
    scalar_per_expert: bool = False
    """Takes thousands of tags that differ in numbers: tables come as scalars where it takes
    no tables, ``moe_balance/layer_0/expert_3/tokens``."""
    close_seconds: float = 5.0
    """How long the end of a run waits for what is queued; at most `MAX_CLOSE_SECONDS`."""


RUN_URL: Final = "run_url"
"""Detail: the page of the run."""
MAX_CLOSE_SECONDS: Final = 30.0
"""Bound of `BackendCapabilities.close_seconds`: a run has a grace period to end in."""


class Backend(Protocol):
    """A sink of reduced records; every method but `details` runs on the writer's thread alone.

    A method may block or raise: the writer keeps either from reaching training.
    """

    @property
    def name(self) -> str:
        """Name for warnings and for the run's summary, such as ``tensorboard``."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """What it can hold; fixed from the beginning."""

    @property
    def details(self) -> Mapping[str, str]:
        """What the run's summary should know, such as ``run_url``; may grow after `open`.

        Read from other threads at any time, so it must not block.
        """

    def open(self) -> None:
        """Acquire files or connections; called once, before the first write."""

    def write(self, record: Record) -> None:
        """Persist every value of the record at its step."""

    def flush(self) -> None:
        """Hand what was written to the operating system or the service."""

    def close(self) -> None:
        """Flush and release; called once, and only if `open` succeeded."""


@runtime_checkable
class MediaBackend(Protocol):
    """A backend that also takes files, such as the video of a finished run."""

    def upload(self, path: Path, name: str) -> None:
        """Send a file under a name; between `open` and `close`, on the writer's thread."""
