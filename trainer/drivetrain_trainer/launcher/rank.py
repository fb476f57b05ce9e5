"""What a rank does first: tie its life to torchrun's, and say that it handles signals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from drivetrain_api import labels
from drivetrain_trainer.launcher.parent_death import die_with_parent
from drivetrain_trainer.launcher.processes import parent_of
from drivetrain_trainer.launcher.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Mapping


def enter_rank(environ: Mapping[str, str] = os.environ) -> None:
    """Call it once this process handles SIGTERM; does nothing without a launcher.

    A rank that a signal ends before this has lost nothing, and counts as stopped; one that
    ends after this without an outcome file has failed.
    """
    launcher = environ.get(labels.ENV_LAUNCHER_PID)
    if launcher is None:
        return
    torchrun = os.getppid()
    die_with_parent(torchrun)
    if parent_of(torchrun) != int(launcher):
        os._exit(1)  # torchrun ended before the kernel could be asked
    Scratch(Path(environ[labels.ENV_SCRATCH])).started(int(environ["RANK"])).touch()
