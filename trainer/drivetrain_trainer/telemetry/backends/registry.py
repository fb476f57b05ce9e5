"""Which backends a run gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.training import LoggerBackend
from drivetrain_trainer.telemetry.backends.tensorboard import TensorBoardBackend

if TYPE_CHECKING:
    from pathlib import Path

    from drivetrain_trainer.telemetry.backends.base import Backend


def make_backends(
    choice: LoggerBackend, directory: Path, *, start_env_steps: int = 0
) -> tuple[Backend, ...]:
    """The persistent backends that ``training.logger`` names; none are opened yet."""
    if choice is LoggerBackend.NONE:
        return ()
    return (TensorBoardBackend(directory, start_env_steps=start_env_steps),)
