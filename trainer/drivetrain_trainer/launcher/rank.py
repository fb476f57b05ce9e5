"""What a rank does first: tie its life to torchrun's, and say that it handles signals."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from drivetrain_api import labels
from drivetrain_api.atomic import write_text_atomically
from drivetrain_api.machine import VISIBLE
from drivetrain_trainer.launcher.mps.names import PIPE_DIRECTORY
from drivetrain_trainer.launcher.parent_death import die_with_parent
from drivetrain_trainer.launcher.processes import parent_of
from drivetrain_trainer.launcher.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import MutableMapping


def enter_rank(environ: MutableMapping[str, str] = os.environ) -> None:
    """Call it once this process handles SIGTERM; does nothing without a launcher.

    A rank that a signal ends before this has lost nothing, and counts as stopped; one that
    ends after this without an outcome file has failed. Where the launcher started MPS, the
    rank is given its GPU and that GPU's daemon, so CUDA must not be up yet.
    """
    launcher = environ.get(labels.ENV_LAUNCHER_PID)
    if launcher is None:
        return
    torchrun = os.getppid()
    die_with_parent(torchrun)
    if parent_of(torchrun) != int(launcher):
        os._exit(1)  # torchrun ended before the kernel could be asked
    _enter_mps(environ)
    started = Scratch(Path(environ[labels.ENV_SCRATCH])).started(int(environ["RANK"]))
    write_text_atomically(started, environ.get(PIPE_DIRECTORY, ""), durable=False)


def _enter_mps(environ: MutableMapping[str, str]) -> None:
    text = environ.get(labels.ENV_MPS_PIPES)
    if text is not None:
        pipes = json.loads(text)
        gpu, directory = pipes[int(environ["LOCAL_RANK"]) % len(pipes)]
        environ.update({VISIBLE: gpu, PIPE_DIRECTORY: directory})
