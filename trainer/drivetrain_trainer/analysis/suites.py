"""Records of suites, as analysis trusts them: which run directories below a root count."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.suite_record import RECORD_LIMIT, SUITE_RECORD, SuiteRecord
from drivetrain_api.atomic import UnreadableFileError, read_bounded
from drivetrain_trainer.analysis.choice import is_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from drivetrain_api.artifacts.suite_record import SuiteMember

_HIGHEST: Final = 6
"""Folders above a run in which its suite's record is looked for."""
_HIDDEN: Final = re.compile(r"\.(.+)\.replaced-[0-9]+")
"""What a suite on this machine calls a folder that it put aside."""
_NUMBERED: Final = re.compile(r"(run_[0-9]+_seed_[0-9]+)-[0-9]+")
"""What a suite on a cluster calls the folder of a member that is started over."""


class SuiteRecordError(ValueError):
    """A record that is there and cannot be trusted; names the file and what is wrong."""


@dataclass(frozen=True)
class NotCounted:
    """Why a run directory below a suite's root is none of its members'."""

    why: str
    """For a person."""
    member: SuiteMember | None
    """Whose directory it was, where its name tells."""


def record_in(root: Path) -> SuiteRecord | None:
    """The record in a folder; None where there is none.

    Raises:
        SuiteRecordError: it is torn, foreign, of a later version or unreadable.
    """
    path = root / SUITE_RECORD
    try:
        if not path.is_file():
            return None
        return SuiteRecord.from_json(read_bounded(path, RECORD_LIMIT))
    except (ArtifactError, UnreadableFileError, OSError) as error:
        raise SuiteRecordError(f"{path}: {error}") from error


@dataclass(frozen=True)
class SuiteFolder:
    """A suite's root and what its record says."""

    root: Path
    """Without symbolic links."""
    record: SuiteRecord

    @cached_property
    def members(self) -> dict[Path, SuiteMember]:
        """Run directories that count, whether they are there or not."""
        return {
            (self.root / member.run_directory).resolve(): member for member in self.record.members
        }

    def judged(self, folder: Path) -> NotCounted | None:
        """Why a run directory below the root does not count; None where it does."""
        path = folder.resolve()
        if path in self.members:
            return None
        name = path.name
        if (hidden := _HIDDEN.fullmatch(name)) is not None:
            name = hidden[1]
        counted = self._places.get((path.parent, _stem(name)))
        if counted is not None:
            words = f"replaced by {counted.name}, as {SUITE_RECORD} says"
            return NotCounted(words, self.members[counted])
        return NotCounted(f"{self.root / SUITE_RECORD} does not name it", None)

    @cached_property
    def _places(self) -> dict[tuple[Path, str], Path]:
        """Folder and name of each member's directory, without the number of its start."""
        return {(path.parent, _stem(path.name)): path for path in self.members}

    def put_aside(self, top: Path) -> Iterator[Path]:
        """Hidden run directories below `top` that a member of the suite had before."""
        above = top.resolve()
        folders = dict.fromkeys(path.parent for path in self.members)
        for folder in folders:
            if not folder.is_relative_to(above) or not folder.is_dir():
                continue
            for path in sorted(folder.iterdir()):
                if _HIDDEN.fullmatch(path.name) and is_run(path):
                    yield top / path.relative_to(above)


class SuiteFolders:
    """Suites around paths, each record read once."""

    def __init__(self) -> None:
        self._read: dict[Path, SuiteFolder | None] = {}

    def around(self, path: Path) -> SuiteFolder | None:
        """The nearest suite whose root is `path` or above it.

        Raises:
            SuiteRecordError: as `record_in`.
        """
        at = path.resolve()
        for root in (at, *at.parents[:_HIGHEST]):
            if root not in self._read:
                record = record_in(root)
                self._read[root] = SuiteFolder(root, record) if record is not None else None
            found = self._read[root]
            if found is not None:
                return found
        return None


def _stem(name: str) -> str:
    numbered = _NUMBERED.fullmatch(name)
    return numbered[1] if numbered is not None else name
