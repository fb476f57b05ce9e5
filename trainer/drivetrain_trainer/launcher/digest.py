"""The last report of an attempt: to the progress sink first, then the termination message."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Final

import structlog

from drivetrain_api.artifacts.outcome import RANK_LOST
from drivetrain_api.digest import TERMINATION_LIMIT, Digest, encode
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.status import RunSummaryDigest
from drivetrain_trainer.evidence.run_directory import uri_of

if TYPE_CHECKING:
    from pathlib import Path

    from drivetrain_api.artifacts.run_summary import RunSummary
    from drivetrain_api.digest import MpsReport
    from drivetrain_api.status import Artifact, Progress, SoakDigest
    from drivetrain_trainer.launcher.outcome import Verdict

log = structlog.get_logger(__name__)

MESSAGE_LIMIT: Final = 600
"""Characters of the message: the rest of the report should fit beside it."""
ERROR_LIMIT: Final = 200
"""Characters of the summary's error, which the message mostly repeats."""


def final_digest(
    attempt: int,
    verdict: Verdict,
    *,
    progress: Progress | None = None,
    summary: RunSummaryDigest | None = None,
    artifacts: tuple[Artifact, ...] = (),
    mps: MpsReport | None = None,
    soak: SoakDigest | None = None,
) -> Digest:
    """The report of an attempt that has ended."""
    return Digest(
        attempt=attempt,
        exit_code=int(verdict.exit_code),
        message=plain_text(verdict.message, MESSAGE_LIMIT),
        rank_lost=verdict.error_type == RANK_LOST or None,
        progress=progress,
        run_summary=summary,
        artifacts=artifacts,
        mps=mps,
        soak=soak,
    )


def summarise(summary: RunSummary, storage: Path, directory: Path) -> RunSummaryDigest:
    """The part of a run summary that the status shows."""
    error, telemetry, stages = summary.error, summary.telemetry, summary.stages
    verdict = None if stages is None else stages.verdict
    return RunSummaryDigest(
        status=summary.status.value,
        total_env_steps=summary.total_env_steps,
        completed_iterations=summary.completed_iterations,
        wall_time_seconds=decimal(summary.wall_time_sec),
        final_mean_reward=decimal(summary.final_mean_reward),
        best_mean_reward=decimal(summary.best_mean_reward),
        evaluated_return=decimal(summary.best_evaluated_return),
        final_evaluated_return=None if verdict is None else decimal(verdict.mean_return),
        threshold_missed=stages and stages.threshold_missed,
        final_env_steps_per_sec=decimal(summary.final_env_steps_per_sec),
        run_directory=uri_of(directory, storage),
        wandb_run_url=summary.wandb_run_url,
        lost_records=telemetry and sum(one.lost for one in telemetry.backends),
        error_type=summary.error_type,
        error=None if error is None else plain_text(error, ERROR_LIMIT),
    )


def decimal(value: float | None) -> str | None:
    """A figure as a decimal string of six digits; None where there is none, or it is not finite."""
    return None if value is None or not math.isfinite(value) else f"{value:.6g}"


def plain_text(text: str, limit: int) -> str:
    """One line of printable ASCII of at most `limit` characters."""
    line = " ".join(text.split())
    shown = "".join(character if " " <= character <= "~" else "?" for character in line)
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."


def write_termination_log(path: Path, digest: Digest, *, create: bool) -> None:
    """Write the termination message; a file that cannot be written costs a warning.

    The file is written in place: on a cluster it is a mount of its own.

    Args:
        path: The file.
        digest: The report; the less important parts are left out where it is too long.
        create: Make the file where there is none.
    """
    flags = os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        text = encode(digest, TERMINATION_LIMIT)
        descriptor = os.open(path, flags | (os.O_CREAT if create else 0), 0o644)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
    except FileNotFoundError:
        if create:
            log.warning("termination message cannot be written", path=str(path))
    except (OSError, ValueError) as error:
        log.warning("termination message cannot be written", path=str(path), reason=str(error))


def log_verdict(verdict: Verdict) -> None:
    """Say how it ended, once."""
    good = verdict.exit_code in (ExitCode.DONE, ExitCode.CHECKPOINTED)
    say = log.info if good else log.error
    say("attempt ended", exit_code=int(verdict.exit_code), message=verdict.message)
