"""Writing and reading checkpoints: complete or absent, checksummed, fenced, bounded in number.

All ranks write their parts into one hidden folder; after a barrier rank 0 adds the manifest
and renames the folder, which is the commit::

    draft = store.draft(env_steps)
    draft.write("rank0", state)      # each rank its own
    ranks.barrier()
    store.commit(draft, ...)         # rank 0 alone
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import structlog
import torch

from drivetrain_api.atomic import fsync_file, fsync_folder, write_text_atomically
from drivetrain_trainer.evidence.checkpoint_catalog import CheckpointCatalog, folder_name
from drivetrain_trainer.evidence.checkpoint_manifest import (
    MANIFEST,
    Checkpoint,
    CheckpointError,
    CheckpointManifest,
    CheckpointPart,
    CheckpointSubject,
    open_checkpoint,
    verify_part,
)
from drivetrain_trainer.evidence.plain import to_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from drivetrain_trainer.evidence.fence import Fence

log = structlog.get_logger(__name__)

_PARTIAL = re.compile(r"\.partial-.*-a([0-9]+)")


@dataclass(frozen=True)
class Draft:
    """A checkpoint that is being written; nobody takes it for one before it is committed."""

    folder: Path
    env_steps: int

    def write(self, part: str, state: Mapping[str, object]) -> None:
        """Write and flush ``<part>.pt``; any rank, parts of different names at the same time.

        Args:
            part: Name of lower-case letters, digits and underscores.
            state: Nested plain data (see `to_plain`).

        Raises:
            TypeError: naming what in `state` cannot be stored.
            OSError: naming the file, such as ENOSPC on a full disk.
        """
        plain = to_plain(state, part)
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{part}.pt"
        unfinished = file.with_suffix(".tmp")
        try:
            with unfinished.open("wb") as content:
                torch.save(plain, content)
            fsync_file(unfinished)
        except (OSError, RuntimeError) as error:
            # Torch's archive writer reports a failed write as a RuntimeError.
            cause = error if isinstance(error, OSError) else error.__context__
            unfinished.unlink(missing_ok=True)
            if not isinstance(cause, OSError):
                raise
            raise OSError(cause.errno, cause.strerror, str(file)) from error
        unfinished.replace(file)

    def discard(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.folder, ignore_errors=True)


class CheckpointStore:
    """The ``checkpoints`` folder of a run directory that this attempt owns."""

    def __init__(
        self,
        folder: Path,
        *,
        subject: CheckpointSubject,
        keep: int,
        fence: Fence,
        world_size: int = 1,
    ) -> None:
        """Create the store.

        Args:
            folder: The ``checkpoints`` folder; created with the first draft.
            subject: What the checkpoints are of.
            keep: Newest checkpoints to keep beside the best.
            fence: Asked before each commit.
            world_size: Ranks of the run.
        """
        self.catalog = CheckpointCatalog(folder)
        self._folder = folder
        self._subject = subject
        self._keep = keep
        self._fence = fence
        self._world_size = world_size

    def draft(self, env_steps: int) -> Draft:
        """Begin a checkpoint; all ranks of an attempt meet in the same folder."""
        name = f".partial-{folder_name(env_steps)}-a{self._fence.attempt}"
        return Draft(self._folder / name, env_steps)

    def commit(
        self,
        draft: Draft,
        *,
        parts: Iterable[str],
        iteration: int,
        evaluated_return: float | None = None,
        best: bool = False,
    ) -> Checkpoint:
        """Make a draft a checkpoint, then drop those beyond `keep`; rank 0, after a barrier.

        Args:
            draft: What the ranks wrote.
            parts: Names of the parts that make it complete.
            iteration: Learner iterations so far.
            evaluated_return: Mean return of the evaluation at this step.
            best: Mark it as the best; it is then kept until a better one comes.

        Raises:
            CheckpointError: a part is missing.
            FencedError: a newer attempt owns the run directory; nothing was committed.
            OSError: naming the path; older checkpoints, and the best, stand as they were.
        """
        manifest = CheckpointManifest(
            created=datetime.now(UTC),
            algo=self._subject.algo,
            task=self._subject.task,
            sim=self._subject.sim,
            sizes=dict(self._subject.sizes),
            world_size=self._world_size,
            attempt=self._fence.attempt,
            env_steps=draft.env_steps,
            iteration=iteration,
            evaluated_return=evaluated_return,
            parts=tuple(_measure(draft.folder / f"{part}.pt") for part in parts),
        )
        write_text_atomically(draft.folder / MANIFEST, manifest.to_json())
        path = self._folder / folder_name(draft.env_steps)
        self._fence.check()
        self._set_aside(path)
        draft.folder.rename(path)
        fsync_folder(self._folder)
        if best:
            self.catalog.mark_best(path)
        self._prune()
        return Checkpoint(path, manifest)

    def note_evaluation(self, env_steps: int, evaluated_return: float, *, best: bool) -> Checkpoint:
        """Tell of a committed checkpoint how it was evaluated; rank 0 alone.

        Args:
            env_steps: Its step.
            evaluated_return: Mean return.
            best: Mark it as the best.

        Raises:
            CheckpointError: it is not there, or damaged.
            FencedError: a newer attempt owns the run directory.
        """
        path = self._folder / folder_name(env_steps)
        manifest = open_checkpoint(path).manifest.model_copy(
            update={"evaluated_return": evaluated_return}
        )
        self._fence.check()
        write_text_atomically(path / MANIFEST, manifest.to_json())
        if best:
            self.catalog.mark_best(path)
            self._prune()
        return Checkpoint(path, manifest)

    def recover(self) -> Checkpoint | None:
        """The newest checkpoint that is sound to the last byte; None before the first one.

        Newer ones that are damaged are set aside as ``.rejected-...`` with a warning.

        Raises:
            CheckpointError: it is of something else; or there are checkpoints and none is
                sound, which is for a person to look at: nothing is moved then.
            FencedError: a newer attempt owns the run directory.
        """
        damaged: dict[Path, CheckpointError] = {}
        paths = self.catalog.paths()
        while paths:
            path = paths.pop()
            try:
                found = open_checkpoint(path)
                found.verify()
            except CheckpointError as error:
                damaged[path] = error
                continue
            self._reject(damaged)
            return open_checkpoint(path, self._subject)
        if damaged:
            raise next(iter(damaged.values()))
        return None

    def sweep(self) -> None:
        """Remove drafts that this attempt, or an older one, left unfinished; rank 0 alone."""
        if not self._folder.is_dir():
            return
        self._fence.check()
        for entry in self._folder.iterdir():
            match = _PARTIAL.fullmatch(entry.name)
            if match and int(match[1]) <= self._fence.attempt:
                shutil.rmtree(entry, ignore_errors=True)

    def _reject(self, damaged: Mapping[Path, CheckpointError]) -> None:
        for path, error in damaged.items():
            log.warning("damaged checkpoint set aside", path=str(path), reason=error.reason)
            self._fence.check()
            path.rename(self._folder / f".rejected-{path.name}-a{self._fence.attempt}")

    def _prune(self) -> None:
        best = self.catalog.best_path()
        for path in self.catalog.paths()[: -self._keep]:
            if path != best:
                self._set_aside(path)

    def _set_aside(self, path: Path) -> None:
        """Remove a checkpoint so that it is never seen in part."""
        name = f".partial-removed-{path.name}-{secrets.token_hex(4)}-a{self._fence.attempt}"
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path.rename(path.with_name(name)), ignore_errors=True)


def load_part(checkpoint: Checkpoint, part: str) -> dict[str, Any]:
    """The state that was written as `part`, tensors on the CPU; verified first.

    Nothing in the file is executed: only tensors and plain data are accepted.

    Raises:
        CheckpointError: naming the file and whether it is missing, damaged or not a state.
    """
    entry = checkpoint.part(part)
    file = checkpoint.path / entry.name
    verify_part(file, entry)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler raises what it likes for a foreign file
        raise CheckpointError(file, f"cannot be loaded: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError(file, f"holds a {type(state).__name__}, not a state")
    return cast("dict[str, Any]", state)


def _measure(file: Path) -> CheckpointPart:
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            return CheckpointPart(name=file.name, bytes=content.tell(), sha256=digest)
    except FileNotFoundError:
        raise CheckpointError(file, "was not written: the checkpoint is not complete") from None
