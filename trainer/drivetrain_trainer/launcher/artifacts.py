"""The files of a run directory as the status lists them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import structlog

from drivetrain_api.status import Artifact
from drivetrain_trainer.evidence.checkpoint_catalog import CheckpointCatalog
from drivetrain_trainer.evidence.checkpoint_manifest import (
    MANIFEST,
    Checkpoint,
    CheckpointError,
)
from drivetrain_trainer.evidence.run_directory import (
    CHECKPOINTS,
    RUN_CONFIG,
    RUN_SUMMARY,
    SOAK,
    uri_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

log = structlog.get_logger(__name__)

FILES: Final = {
    "run_summary": RUN_SUMMARY,
    "run_config": RUN_CONFIG,
    "soak": SOAK,
    "video": "play_video.mp4",
}
"""Name of an artifact -> file of the run directory."""


def list_artifacts(directory: Path, storage: Path) -> tuple[Artifact, ...]:
    """Summary, configuration, soak, video, the best and the last checkpoint, where they are there.

    Args:
        directory: The run directory.
        storage: The storage root, which the URIs are relative to.
    """
    return (*_checkpoints(directory, storage), *_files(directory, storage))


def _files(directory: Path, storage: Path) -> Iterator[Artifact]:
    for name, file in FILES.items():
        path = directory / file
        try:
            digest = _digest(path)
            size = path.stat().st_size
        except OSError:
            continue
        yield Artifact(name=name, uri=uri_of(path, storage), sha256=digest, bytes=size)


def _checkpoints(directory: Path, storage: Path) -> Iterator[Artifact]:
    catalog = CheckpointCatalog(directory / CHECKPOINTS)
    found: dict[str, Callable[[], Checkpoint | None]] = {
        "best_checkpoint": catalog.best,
        "last_checkpoint": catalog.latest,
    }
    for name, find in found.items():
        try:
            checkpoint = find()
            if checkpoint is None:
                continue
            digest = _digest(checkpoint.path / MANIFEST)
        except (CheckpointError, OSError) as error:
            log.warning("checkpoint is not listed", artifact=name, reason=str(error))
            continue
        uri = uri_of(checkpoint.path, storage)
        yield Artifact(name=name, uri=uri, sha256=digest, bytes=checkpoint.bytes)


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
