"""torchrun as a child process: its command line, and what it says at its end."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from drivetrain_api import labels
from drivetrain_api.artifacts.base import ArtifactError, ArtifactModel
from drivetrain_api.atomic import UnreadableFileError, read_bounded
from drivetrain_api.base import Finite, NonNegativeInt, ShortText

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivetrain_api.attempt import AttemptSpec
    from drivetrain_trainer.launcher.scratch import Scratch
    from drivetrain_trainer.launcher.settings import LauncherSettings, Rendezvous

RANK_MODULE: Final = "drivetrain_trainer.train"
"""Module that each rank runs."""
RENDEZVOUS_SECONDS: Final = 300
"""How long pods wait for one another: image pulls differ by minutes."""

_AGENT = "drivetrain_trainer.launcher.agent"
_REPORT_LIMIT = 64 << 10
_STOP_SIGNAL = "SIGTERM"


class RankFailure(ArtifactModel):
    """A rank that torchrun saw end with something else than 0."""

    rank: NonNegativeInt
    """Global rank."""
    exit_code: Annotated[int, Field(strict=True, ge=-64, le=255)]
    """As the parent saw it; the negative of a signal's number."""
    seen_at: Finite
    """Unix time, whole seconds."""


class TorchrunReport(ArtifactModel):
    """``torchrun.json``: written by the agent as its last act."""

    failures: Annotated[tuple[RankFailure, ...], Field(max_length=64)] = ()
    """Ranks that failed, in no order."""
    error_type: ShortText | None = None
    """Class of an error of torchrun's own."""
    error: Annotated[str, Field(strict=True, max_length=4096)] | None = None
    """Its message."""


@dataclass(frozen=True)
class TorchrunPlan:
    """Everything that decides how torchrun is started."""

    attempt: AttemptSpec
    rendezvous: Rendezvous
    settings: LauncherSettings
    scratch: Scratch
    grace_seconds: int
    module: str = RANK_MODULE

    def arguments(self) -> list[str]:
        """Arguments of torchrun, the rank's own included.

        torchrun never restarts ranks: a failure ends the attempt as a whole. Its own
        time-out between SIGTERM and SIGKILL is the whole grace period, so that it is the
        launcher that decides when a checkpoint has had time enough.
        """
        rendezvous = self.rendezvous
        return [
            f"--nnodes={rendezvous.nodes}",
            f"--nproc-per-node={rendezvous.ranks_per_node}",
            f"--node-rank={rendezvous.node_rank}",
            f"--master-addr={rendezvous.master_addr}",
            f"--master-port={rendezvous.master_port}",
            "--max-restarts=0",
            "--rdzv-backend=static",
            f"--rdzv-id={self.attempt.uid}-a{self.attempt.attempt}",
            f"--rdzv-conf=timeout={RENDEZVOUS_SECONDS}",
            f"--shutdown-timeout={self.grace_seconds}",
            f"--signals-to-handle={_STOP_SIGNAL}",
            f"--log-dir={os.devnull}",
            "--module",
            self.module,
            "--spec",
            str(self.settings.spec_file),
        ]

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Environment of torchrun and of the ranks.

        One thread a process is what keeps CPU training deterministic under load.
        """
        return {
            "OMP_NUM_THREADS": "1",
            **environ,
            labels.ENV_SPEC_FILE: str(self.settings.spec_file),
            labels.ENV_STORAGE: str(self.settings.storage),
            labels.ENV_SCRATCH: str(self.settings.scratch),
            labels.ENV_LAUNCHER_PID: str(os.getpid()),
        }


def start_torchrun(plan: TorchrunPlan, environ: Mapping[str, str]) -> int:
    """Start it in a session of its own, on our stdout and stderr; returns its process id.

    A terminal's Ctrl-C reaches the launcher alone: torchrun passes on one SIGTERM, and a
    second signal would cut short its wait for the ranks.
    """
    command = [
        sys.executable,
        "-m",
        _AGENT,
        str(os.getpid()),
        str(plan.scratch.torchrun),
        *plan.arguments(),
    ]
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command,
        env=plan.environment(environ),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.returncode = 0  # the launcher reaps every child itself, this one included
    return process.pid


def read_report(path: Path) -> TorchrunReport | None:
    """What torchrun left; None where it was killed first, or what is there is not a report."""
    try:
        return TorchrunReport.from_json(read_bounded(path, _REPORT_LIMIT))
    except (FileNotFoundError, UnreadableFileError, ArtifactError):
        return None
