"""The traces of a rank: what the spec asks for, opened for its learner."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from drivetrain_trainer.tracing import (
    NO_FLOW,
    NULL_TRACER,
    Role,
    TickFlow,
    TraceSettings,
    open_tracer,
)

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from drivetrain_trainer.evidence.run_directory import RunDirectory
    from drivetrain_trainer.runtime.transport import Transport
    from drivetrain_trainer.tracing import Tracer
    from drivetrain_trainer.training.inputs import RankInput

log = structlog.get_logger(__name__)

TRACES: Final = "traces"
"""Folder in the run directory."""
_MEGABYTE: Final = 1_000_000
_UID_LENGTH: Final = 8


@dataclass(frozen=True)
class RankTrace:
    """The learner's tracer, and what the collector needs for its own."""

    tracer: Tracer = NULL_TRACER
    settings: TraceSettings | None = None
    """None where nothing is traced."""

    def flow(self, transport: Transport) -> TickFlow:
        """Marks of the learner's side of each tick."""
        if self.settings is None:
            return NO_FLOW
        return TickFlow(
            self.tracer,
            rank=self.settings.rank,
            attempt=self.settings.attempt,
            groups=transport.ring.groups,
        )

    @property
    def collector(self) -> TraceSettings | None:
        """For the collector's boot message."""
        return None if self.settings is None else self.settings.of(Role.COLLECTOR)

    @property
    def directory(self) -> Path | None:
        """Where the traces of all ranks and attempts lie; None where nothing is written."""
        return self.settings.directory if self.settings is not None else None


def open_trace(
    given: RankInput, rank: int, device: torch.device, directory: RunDirectory
) -> RankTrace:
    """Begin the learner's trace, where the spec asks for one."""
    training = given.spec.training
    if not training.trace_enabled:
        return RankTrace()
    on_cuda = device.type == "cuda"
    if training.trace_cuda_events and not on_cuda:
        log.warning(
            "training.trace_cuda_events has nothing to record: the learner uses no CUDA device",
            device=str(device),
        )
    settings = TraceSettings(
        directory=traces_folder(given, directory),
        rank=rank,
        role=Role.LEARNER,
        attempt=given.attempt.attempt,
        max_bytes=training.trace_max_megabytes * _MEGABYTE,
        thread_time=training.trace_thread_time,
        cuda_device=str(device) if training.trace_cuda_events and on_cuda else None,
    )
    tracer = open_tracer(settings)
    return RankTrace(tracer, settings) if tracer.enabled else RankTrace()


def traces_folder(given: RankInput, directory: RunDirectory) -> Path:
    """`traces` in the run directory, or a folder of the run's in `training.trace_output_dir`.

    A relative `trace_output_dir` starts at the storage root, as `log_root` does. Runs may
    share it: each has a folder there, with its name and the beginning of its UID.
    """
    asked = given.spec.training.trace_output_dir
    if asked is None:
        return directory.path / TRACES
    uid = re.sub(r"[^A-Za-z0-9._-]", "_", given.attempt.uid)[:_UID_LENGTH]
    return given.storage / asked / f"{given.attempt.name}-{uid}"
