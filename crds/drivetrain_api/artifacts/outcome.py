"""``outcome-rank<R>.json``: what a rank says of its end; torchrun itself only returns 1."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from drivetrain_api.artifacts.base import ArtifactModel
from drivetrain_api.artifacts.shutdown import ShutdownReport
from drivetrain_api.base import NonNegativeInt, Path, ShortText, StepOffset

RANK_LOST: Final = "RankLostError"
"""`error_type` of a rank whose collective failed since another rank was gone: not the cause."""


class RunStatus(StrEnum):
    """Where a run, or a rank of it, stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


ErrorText = Annotated[str, Field(strict=True, max_length=4096)]


class RankOutcome(ArtifactModel):
    """Written atomically by each rank as its last act."""

    rank: NonNegativeInt
    """Global rank."""
    exit_code: Annotated[int, Field(strict=True, ge=0, le=255)]
    """What the rank asks the launcher to exit with (drivetrain_api.exit_codes)."""
    status: RunStatus
    """completed, interrupted or failed."""
    error_type: ShortText | None = None
    """Class of the error on failure."""
    error: ErrorText | None = None
    """Its message."""
    env_steps: StepOffset = 0
    """Environment steps over all ranks when it ended."""
    checkpoint: Path | None = None
    """Newest complete checkpoint."""
    shutdown: ShutdownReport | None = None
    """How the rank was taken down; null where it ended before it was watched."""
