"""TensorBoard event files, written synchronously on the writer's thread.

The protobuf messages of the ``tensorboard`` package are the format; its writers are left
out, because they start a thread of their own and hide its errors.
"""

from __future__ import annotations

import os
import socket
import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from tensorboard.compat.proto.event_pb2 import Event, SessionLog

from drivetrain_trainer.telemetry.backends.append_file import AppendFile
from drivetrain_trainer.telemetry.backends.base import BackendCapabilities
from drivetrain_trainer.telemetry.backends.record_frame import framed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivetrain_trainer.telemetry.backends.base import BackendContext
    from drivetrain_trainer.telemetry.record import Record

FILE_VERSION = "brain.Event:2"
"""First record of every event file."""


def make(context: BackendContext) -> TensorBoardBackend:
    """The backend of a run."""
    return TensorBoardBackend(
        context.directory, start_env_steps=context.start_env_steps, attempt=context.attempt
    )


class TensorBoardBackend:
    """One event file a process in the run directory; existing files are never touched.

    A later attempt starts at `start_env_steps`, 0 where there was no checkpoint: TensorBoard
    then drops what an earlier one logged beyond that step.
    """

    name = "tensorboard"
    capabilities = BackendCapabilities()
    details: Mapping[str, str] = MappingProxyType({})

    def __init__(self, directory: Path, *, start_env_steps: int = 0, attempt: int = 1) -> None:
        self._directory = directory
        self._restarted = attempt > 1 or start_env_steps > 0
        self._start_env_steps = start_env_steps
        self._file: AppendFile | None = None

    def open(self) -> None:
        """Create the event file and its header.

        Raises:
            OSError: where the directory cannot be written.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        stem = f"events.out.tfevents.{time.time_ns() // 1_000_000_000:010d}"
        path = self._directory / f"{stem}.{socket.gethostname()}.{os.getpid()}.{time.time_ns()}"
        self._file = AppendFile.create(path)
        self._append(Event(wall_time=time.time(), file_version=FILE_VERSION))
        if self._restarted:
            start = SessionLog(status=SessionLog.START)
            self._append(
                Event(wall_time=time.time(), step=self._start_env_steps + 1, session_log=start)
            )

    def write(self, record: Record) -> None:
        """One event with every value; NaN and infinities are kept as they are."""
        event = Event(wall_time=record.wall_time, step=record.env_steps)
        add = event.summary.value.add
        for tag, value in record.values.items():
            add(tag=tag, simple_value=value)
        self._append(event)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    @property
    def _opened(self) -> AppendFile:
        if self._file is None:
            raise RuntimeError("TensorBoardBackend is used before open()")
        return self._file

    def _append(self, event: Event) -> None:
        self._opened.append(framed(event.SerializeToString()))
