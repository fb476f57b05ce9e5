from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drivetrain_trainer.tracing import FileTracer, Role, TraceSettings
from drivetrain_trainer.tracing.gpu import GpuIntervals

Open = Callable[..., FileTracer]


@pytest.fixture
def open_trace(tmp_path: Path) -> Iterator[Open]:
    """Opens tracers below `tmp_path`; closes them at the end."""
    opened: list[FileTracer] = []

    def make(
        *,
        rank: int = 0,
        role: Role = Role.LEARNER,
        attempt: int = 1,
        gpu: GpuIntervals | None = None,
        directory: Path = tmp_path,
        max_bytes: int = 100_000_000,
        **settings: Any,
    ) -> FileTracer:
        tracer = FileTracer(
            TraceSettings(directory, rank, role, attempt, max_bytes, **settings), gpu
        )
        opened.append(tracer)
        return tracer

    yield make
    for tracer in opened:
        tracer.close()
