"""The run directory: where it lies, which run owns it, and which attempt may write to it."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from drivetrain_api.algorithms import ALGO_LOG_NAMES
from drivetrain_api.artifacts.base import ArtifactError, ArtifactModel
from drivetrain_api.atomic import UnreadableFileError, fsync_folder, read_bounded
from drivetrain_api.base import Name, ShortText
from drivetrain_api.errors import SpecError, Violation
from drivetrain_trainer.evidence.fence import Fence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivetrain_api.attempt import AttemptSpec
    from drivetrain_api.trainingrun import TrainingRunSpec

RUN_CONFIG: Final = "run_config.json"
RUN_SUMMARY: Final = "run_summary.json"
CHECKPOINTS: Final = "checkpoints"
SOAK: Final = "soak.json"

_PRIVATE = ".drivetrain"
_OWNER = "owner.json"
_OWNER_LIMIT = 4096
_CLASHES = 1000
_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What may be over by the next attempt, so that the run is not refused for good."""


class Owner(ArtifactModel):
    """The run that a directory belongs to; written once, never changed."""

    uid: ShortText
    """UID of the TrainingRun."""
    namespace: Name
    """Its namespace."""
    name: Name
    """Its name."""

    @classmethod
    def of(cls, attempt: AttemptSpec) -> Self:
        """The run of an attempt."""
        return cls(uid=attempt.uid, namespace=attempt.namespace, name=attempt.name)


@dataclass(frozen=True)
class Location:
    """Where the run directories of a spec lie, before anything is created."""

    setting: str
    """snake_case path of the setting that decided it."""
    path: Path
    """The run directory without a suffix."""
    fixed: bool
    """`training.log_dir` names the directory itself: no suffix is taken."""

    @classmethod
    def of(cls, spec: TrainingRunSpec, created: datetime, storage: Path) -> Self:
        """Location for a spec, composed or not; relative paths start at `storage`.

        Args:
            spec: The run's spec.
            created: Creation time of the run; a naive time is taken as UTC.
            storage: The storage root.

        Raises:
            SpecError: a path that no file system can hold.
        """
        training = spec.training
        for setting, value in (("log_dir", training.log_dir), ("log_root", training.log_root)):
            if value is not None and "\0" in value:
                raise _refused(f"training.{setting}", f"a path holds no NUL; got {value!r}")
        if training.log_dir is not None:
            return cls("training.log_dir", storage / training.log_dir, fixed=True)
        root = training.log_root or f"logs/{ALGO_LOG_NAMES[spec.algo.name]}/{spec.task.name}"
        moment = created.astimezone(UTC) if created.tzinfo else created
        name = f"{moment:%Y-%m-%d_%H-%M-%S}_{spec.sim}"
        return cls("training.log_root", storage / root / name, fixed=False)

    def candidates(self) -> Iterator[Path]:
        """The directory, then the same with -2, -3... where another run may have it."""
        yield self.path
        if not self.fixed:
            for number in range(2, _CLASHES):
                yield self.path.with_name(f"{self.path.name}-{number}")

    def existing(self) -> list[Path]:
        """Directories of that name, with or without a suffix, that are there; lowest first."""
        if self.fixed:
            return [self.path] if self.path.is_dir() else []
        pattern = re.compile(rf"{re.escape(self.path.name)}(?:-([0-9]+))?")
        found: list[tuple[int, Path]] = []
        if self.path.parent.is_dir():
            for entry in self.path.parent.iterdir():
                match = pattern.fullmatch(entry.name)
                if match and entry.is_dir():
                    found.append((int(match[1] or 1), entry))
        return [path for _, path in sorted(found)]


@dataclass(frozen=True)
class RunDirectory:
    """A run directory that this attempt owns."""

    path: Path
    """The directory."""
    fence: Fence
    """Asked before each commit."""
    resumed: bool
    """Whether the run had it before: an earlier attempt wrote there."""

    @classmethod
    def claim(cls, attempt: AttemptSpec, storage: Path) -> Self:
        """Create the directory, or go on in the one that this run has; rank 0 alone calls it.

        Raises:
            SpecError: it cannot be written, or `training.log_dir` belongs to another run.
            OSError: the disk or the quota is full for now.
            FencedError: a newer attempt has it already.
        """
        location = Location.of(attempt.spec, attempt.created, storage)
        owner = Owner.of(attempt)
        try:
            path, resumed = _own(location, owner)
            fence = fence_of(path, attempt.attempt)
            fence.take()
        except OSError as error:
            raise _refusal(location, storage, error) from error
        return cls(path=path, fence=fence, resumed=resumed)

    @classmethod
    def join(cls, path: Path, attempt: int) -> Self:
        """The directory that rank 0 claimed, on another rank of the same attempt.

        Raises:
            FencedError: a newer attempt has it by now.
        """
        fence = fence_of(path, attempt)
        fence.check()
        return cls(path=path, fence=fence, resumed=True)

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / CHECKPOINTS

    @property
    def run_summary(self) -> Path:
        """Path of run_summary.json."""
        return self.path / RUN_SUMMARY

    @property
    def run_config(self) -> Path:
        """Path of run_config.json."""
        return self.path / RUN_CONFIG


def artifact_directory(spec: TrainingRunSpec, run_directory: Path) -> Path:
    """Where timings.json of a run lies: beside the other members of its suite, if it has one."""
    return run_directory if spec.experiment is None else run_directory.parent


def fence_of(path: Path, attempt: int) -> Fence:
    """The fence of a run directory, for an attempt that has or has not taken it."""
    return Fence(path / _PRIVATE / "attempts", attempt)


def find_run_directory(attempt: AttemptSpec, storage: Path) -> Path | None:
    """The directory that the run owns, if an attempt has claimed one; creates nothing."""
    location = Location.of(attempt.spec, attempt.created, storage)
    try:
        return _owned(location, Owner.of(attempt))
    except OSError:
        return None


def check_writable(attempt: AttemptSpec, storage: Path) -> None:
    """Refuse a run whose directory could not be created; leaves nothing behind.

    Raises:
        SpecError: naming the path, the setting and the system's reason.
        OSError: the disk or the quota is full for now.
    """
    location = Location.of(attempt.spec, attempt.created, storage)
    try:
        if location.fixed and location.path.is_dir():
            _refuse_foreign(location, Owner.of(attempt))
        ancestor = next(path for path in _ancestors(location.path) if path.exists())
        with tempfile.TemporaryFile(dir=ancestor):
            pass
    except OSError as error:
        raise _refusal(location, storage, error) from error


def uri_of(path: Path, storage: Path) -> str:
    """A path as status shows it: relative to the storage root where it lies below it."""
    resolved, root = path.resolve(), storage.resolve()
    return str(resolved.relative_to(root)) if resolved.is_relative_to(root) else str(resolved)


def _own(location: Location, owner: Owner) -> tuple[Path, bool]:
    """The path that `owner` has now, and whether it had it before."""
    before = _owned(location, owner)
    if before is not None:
        return before, True
    location.path.parent.mkdir(parents=True, exist_ok=True)
    for path in location.candidates():
        if _take(path, owner):
            fsync_folder(path.parent)
            return path, False
        _refuse_foreign(location, owner)
    raise OSError(errno.EEXIST, f"{_CLASHES} directories of this name exist", str(location.path))


def _take(path: Path, owner: Owner) -> bool:
    """Make `path` the owner's if it is new, or empty and nobody's."""
    path.mkdir(exist_ok=True)
    if any(entry.name != _PRIVATE for entry in path.iterdir()):
        return False
    private = path / _PRIVATE
    private.mkdir(exist_ok=True)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(private / _OWNER, flags, 0o644)
    except FileExistsError:
        return _owner_of(path) == owner
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(owner.to_json())
        file.flush()
        os.fsync(descriptor)
    fsync_folder(private)
    return True


def _owned(location: Location, owner: Owner) -> Path | None:
    return next((path for path in location.existing() if _owner_of(path) == owner), None)


def _owner_of(path: Path) -> Owner | None:
    try:
        return Owner.from_json(read_bounded(path / _PRIVATE / _OWNER, _OWNER_LIMIT))
    except (FileNotFoundError, UnreadableFileError, ArtifactError):
        return None


def _refuse_foreign(location: Location, owner: Owner) -> None:
    """Refuse a fixed directory that is another run's, or holds what no run wrote."""
    if not location.fixed or not location.path.is_dir():
        return
    found = _owner_of(location.path)
    if found is None and any(entry.name != _PRIVATE for entry in location.path.iterdir()):
        raise _refused(
            location.setting,
            f"{location.path} is not empty and belongs to no run: name a new or empty directory",
        )
    if found is not None and found != owner:
        raise _refused(
            location.setting,
            f"{location.path} belongs to the run {found.namespace}/{found.name} "
            f"(uid {found.uid}): name another directory",
        )


def _refusal(location: Location, storage: Path, error: OSError) -> SpecError | OSError:
    """What is wrong with the run's place, or the error as it is where a retry may get by."""
    reason = error.strerror or str(error)
    if error.errno in _PASSING:
        return OSError(error.errno, reason, str(location.path))
    return _refused(
        location.setting,
        f"cannot write the run directory {location.path} (storage root {storage}): {reason}",
    )


def _refused(setting: str, message: str) -> SpecError:
    return SpecError((Violation(setting, message),))


def _ancestors(path: Path) -> Iterator[Path]:
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links that fail
    yield absolute
    yield from absolute.parents
