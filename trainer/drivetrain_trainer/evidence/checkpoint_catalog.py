"""The checkpoints of a run directory: which is the newest, which the best, which was meant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.base import ArtifactError, ArtifactModel
from drivetrain_api.atomic import (
    UnreadableFileError,
    read_bounded,
    write_text_atomically,
)
from drivetrain_api.base import ShortText
from drivetrain_trainer.evidence.checkpoint_manifest import (
    MANIFEST,
    Checkpoint,
    CheckpointError,
    open_checkpoint,
)
from drivetrain_trainer.evidence.run_directory import CHECKPOINTS

if TYPE_CHECKING:
    from pathlib import Path

    from drivetrain_trainer.evidence.checkpoint_manifest import CheckpointSubject

BEST: Final = "best.json"

_NAME = re.compile(r"step_([0-9]{12,})")
_POINTER_LIMIT = 4096


class Preference(StrEnum):
    """Which checkpoint of a run directory is meant."""

    LATEST = "latest"
    BEST = "best"


class BestPointer(ArtifactModel):
    """``best.json``: which checkpoint the evaluator holds to be the best."""

    checkpoint: ShortText
    """Name of its folder."""


@dataclass(frozen=True)
class CheckpointCatalog:
    """A folder of checkpoints, read only."""

    folder: Path

    def paths(self) -> list[Path]:
        """Folders of complete checkpoints, oldest step first."""
        if not self.folder.is_dir():
            return []
        found = [
            (int(match[1]), entry)
            for entry in self.folder.iterdir()
            if (match := _NAME.fullmatch(entry.name)) and entry.is_dir()
        ]
        return [path for _, path in sorted(found)]

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint.

        Raises:
            CheckpointError: it is damaged.
        """
        paths = self.paths()
        return open_checkpoint(paths[-1]) if paths else None

    def best(self) -> Checkpoint | None:
        """The checkpoint that was last marked as the best; None where none was.

        Raises:
            CheckpointError: it is damaged.
        """
        path = self.best_path()
        return open_checkpoint(path) if path is not None else None

    def best_path(self) -> Path | None:
        """Folder of the best checkpoint, where the pointer names one that is there."""
        try:
            pointer = BestPointer.from_json(read_bounded(self.folder / BEST, _POINTER_LIMIT))
        except (FileNotFoundError, UnreadableFileError, ArtifactError):
            return None
        path = self.folder / pointer.checkpoint
        return path if _NAME.fullmatch(pointer.checkpoint) and path.is_dir() else None

    def mark_best(self, path: Path) -> None:
        """Point to a checkpoint of this folder as the best."""
        write_text_atomically(self.folder / BEST, BestPointer(checkpoint=path.name).to_json())


def folder_name(env_steps: int) -> str:
    """Name of the checkpoint at a step."""
    return f"step_{env_steps:012d}"


def resolve_checkpoint(
    path: Path, prefer: Preference, subject: CheckpointSubject | None = None
) -> Checkpoint:
    """The checkpoint that a person means by a path.

    Args:
        path: A checkpoint folder, a run directory, or its ``checkpoints`` folder.
        prefer: Which one of a run directory; the latest where none was marked as the best.
        subject: What it must be of; any where None.

    Raises:
        CheckpointError: there is none, or it cannot be used.
    """
    if (path / MANIFEST).exists():
        return open_checkpoint(path, subject)
    if not path.exists():
        raise CheckpointError(path, "is not there")
    for folder in (path / CHECKPOINTS, path):
        catalog = CheckpointCatalog(folder)
        paths = catalog.paths()
        if paths:
            best = catalog.best_path() if prefer is Preference.BEST else None
            return open_checkpoint(best or paths[-1], subject)
    raise CheckpointError(
        path, f"is neither a checkpoint (it holds no {MANIFEST}) nor a run directory with one"
    )
