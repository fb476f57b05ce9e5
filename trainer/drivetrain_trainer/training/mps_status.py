"""How CUDA MPS concerns a rank."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.launcher.mps.names import CONTROL, PIPE_DIRECTORY
from drivetrain_trainer.telemetry.facts import MpsStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PIPE_DIRECTORY: Final = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks, unless told
"""Pipe directory of a daemon that was told of none."""


def mps_status(
    environ: Mapping[str, str] | None = None, *, cuda: bool, validated: bool = False
) -> MpsStatus:
    """Whether a rank shares its GPU through MPS, and whether the run asked for that.

    Args:
        environ: environment of the rank; this process's when unset.
        cuda: whether the rank trains on a CUDA device.
        validated: whether the run asked for process sharing and it was checked.
    """
    if not cuda:
        return MpsStatus.OFF
    if validated:
        return MpsStatus.ON
    given = os.environ if environ is None else environ
    control = Path(given.get(PIPE_DIRECTORY) or DEFAULT_PIPE_DIRECTORY) / CONTROL
    try:
        mode = control.stat().st_mode
    except OSError:
        return MpsStatus.OFF
    return MpsStatus.AMBIENT if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else MpsStatus.OFF
