"""The bounded report that leaves a pod: progress while it lives, the outcome at its end.

The launcher writes it to the progress sink and, in the end, to the termination message;
the operator validates it before a word of it reaches a status.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from drivetrain_api.base import ApiModel, NonNegativeInt
from drivetrain_api.status import Artifact, Message, Progress, RunSummaryDigest

TERMINATION_LIMIT = 2048
"""Bytes of a termination message; Kubernetes keeps 4096, and only the tail beyond."""
PROGRESS_LIMIT = 4096
"""Bytes of the progress ConfigMap's one entry; the admission policy holds it too."""


class Digest(ApiModel):
    """What an attempt says of itself."""

    schema_version: Literal[1] = 1
    """Version of this report."""
    attempt: NonNegativeInt
    """The attempt that wrote it."""
    exit_code: NonNegativeInt | None = None
    """The launcher's exit code; unset while it runs."""
    message: Message = ""
    """Why it ended, for a person."""
    progress: Progress | None = None
    """Figures."""
    run_summary: RunSummaryDigest | None = None
    """Digest of run_summary.json."""
    artifacts: Annotated[tuple[Artifact, ...], Field(max_length=16)] = ()
    """Files on the storage."""


def encode(digest: Digest, limit: int) -> str:
    """ASCII JSON of at most `limit` bytes: artifacts, then the summary, are left out first."""
    for kept in (
        digest,
        digest.model_copy(update={"artifacts": ()}),
        digest.model_copy(update={"artifacts": (), "run_summary": None}),
        digest.model_copy(
            update={"artifacts": (), "run_summary": None, "message": digest.message[:256]}
        ),
    ):
        text = json.dumps(
            kept.model_dump(mode="json", by_alias=True, exclude_none=True), separators=(",", ":")
        )
        if len(text) <= limit:
            return text
    raise ValueError(f"digest does not fit {limit} bytes")


def decode(text: str, limit: int) -> Digest | None:
    """The report in `text`, or None where it is not one: hostile content is only ignored."""
    if len(text.encode("utf-8", "replace")) > limit:
        return None
    try:
        return Digest.model_validate_json(text)
    except ValidationError:
        return None
