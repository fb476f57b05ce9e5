"""The bounded report that leaves a pod: progress while it lives, the outcome at its end.

The launcher writes it to the progress sink and, in the end, to the termination message;
the operator validates it before a word of it reaches a status.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from drivetrain_api.base import ApiModel, Flag, NonNegativeInt
from drivetrain_api.status import Artifact, Message, Progress, RunSummaryDigest, SoakDigest
from drivetrain_api.trainingrun import MpsMode

TERMINATION_LIMIT = 2048
"""Bytes of a termination message; Kubernetes keeps 4096, and only the tail beyond."""
PROGRESS_LIMIT = 4096
"""Bytes of the progress ConfigMap's one entry; the admission policy holds it too."""


class MpsReport(ApiModel):
    """What became of CUDA MPS in the pod of rank 0."""

    mode: MpsMode
    """The mode that the spec asked for."""
    ready: Flag
    """InContainer: each rank was seen as its daemon's client. External: the daemon answers."""
    daemons: NonNegativeInt = 0
    """Daemons that answer: those that the launcher started, or the injected one."""
    message: Message = ""
    """For a person: what was found, or what to do."""


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
    rank_lost: Flag | None = None
    """Whether it ended only since a rank of another pod was gone."""
    progress: Progress | None = None
    """Figures."""
    run_summary: RunSummaryDigest | None = None
    """Digest of run_summary.json."""
    artifacts: Annotated[tuple[Artifact, ...], Field(max_length=16)] = ()
    """Files on the storage."""
    mps: MpsReport | None = None
    """CUDA MPS; unset where the spec does not ask for it."""
    soak: SoakDigest | None = None
    """The soak monitor's verdict, at the end; unset where the spec does not ask for one."""


def encode(digest: Digest, limit: int) -> str:
    """ASCII JSON of at most `limit` bytes.

    What is left out where it is too long, in this order: the artifacts, the summary, the tails
    of the messages, the report on MPS, the verdict of the soak.

    Raises:
        ValueError: it is still too long.
    """
    without_artifacts = digest.model_copy(update={"artifacts": ()})
    without_summary = without_artifacts.model_copy(update={"run_summary": None})
    short = without_summary.model_copy(
        update={
            "message": digest.message[:256],
            "mps": _shortened(digest.mps),
            "soak": _shortened_soak(digest.soak),
        }
    )
    without_mps = short.model_copy(update={"mps": None})
    without_soak = without_mps.model_copy(update={"soak": None})
    for kept in (digest, without_artifacts, without_summary, short, without_mps, without_soak):
        text = json.dumps(
            kept.model_dump(mode="json", by_alias=True, exclude_none=True), separators=(",", ":")
        )
        if len(text) <= limit:
            return text
    raise ValueError(f"digest does not fit {limit} bytes")


def _shortened(report: MpsReport | None) -> MpsReport | None:
    return report and report.model_copy(update={"message": report.message[:128]})


def _shortened_soak(verdict: SoakDigest | None) -> SoakDigest | None:
    if verdict is None or verdict.failure_reason is None:
        return verdict
    return verdict.model_copy(update={"failure_reason": verdict.failure_reason[:128]})


def decode(text: str, limit: int) -> Digest | None:
    """The report in `text`, or None where it is not one: hostile content is only ignored."""
    if len(text.encode("utf-8", "replace")) > limit:
        return None
    try:
        return Digest.model_validate_json(text)
    except ValidationError:
        return None
