"""How a rank's life ended, told in its summary and its outcome."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_api.artifacts.outcome import RankOutcome, RunStatus
from drivetrain_api.atomic import write_text_atomically
from drivetrain_api.errors import SpecError
from drivetrain_api.exit_codes import ExitCode
from drivetrain_trainer.algorithms.sac.agent import NonFiniteTrainingError
from drivetrain_trainer.evidence.checkpoint_manifest import CheckpointError
from drivetrain_trainer.runtime.faults import ChildFailedError
from drivetrain_trainer.training.record import told_where_unwritten

if TYPE_CHECKING:
    from pathlib import Path

    from drivetrain_api.artifacts.shutdown import ShutdownReport
    from drivetrain_trainer.launcher.scratch import Scratch
    from drivetrain_trainer.training.record import RankRecord

_STATUS = {
    ExitCode.DONE: RunStatus.COMPLETED,
    ExitCode.CHECKPOINTED: RunStatus.INTERRUPTED,
}


@dataclass(frozen=True)
class End:
    """How the rank's life ended."""

    code: ExitCode
    error: BaseException | None = None

    @classmethod
    def by(cls, error: BaseException) -> End:
        """The end that an exception brought."""
        if isinstance(error, (SpecError, CheckpointError)):
            return cls(ExitCode.REFUSED, error)
        told = error.failure if isinstance(error, ChildFailedError) else None
        broken = isinstance(error, NonFiniteTrainingError) or (told is not None and told.final)
        return cls(ExitCode.BROKEN if broken else ExitCode.FAILED, error)


def tell_end(
    scratch: Scratch | None, record: RankRecord, end: End, shutdown: ShutdownReport
) -> None:
    """Write summary and outcome; again, where the way out brought further errors."""
    status = _STATUS.get(end.code, RunStatus.FAILED)
    with told_where_unwritten():
        record.end_manifest(shutdown, reached_end=status is RunStatus.COMPLETED)
        if record.summary is not None:
            record.summary.finish(status, end.error)
    number = int(os.environ.get("RANK", "0"))
    outcome = RankOutcome(
        rank=number,
        exit_code=int(end.code),
        status=status,
        error_type=type(end.error).__name__ if end.error is not None else None,
        error=str(end.error)[:4096] if end.error is not None else None,
        env_steps=record.cursor.env_steps,
        checkpoint=record.checkpoint,
        shutdown=shutdown,
    )
    if scratch is not None:
        _write_outcome(scratch.outcome(number), outcome)


def _write_outcome(path: Path, outcome: RankOutcome) -> None:
    """Write it, or write it again as of the first time: that is when the rank ended."""
    first = path.stat().st_mtime if path.exists() else None
    write_text_atomically(path, outcome.to_json())
    if first is not None:
        os.utime(path, (first, first))
