"""The attempt number as a fencing token: a partitioned pod may live on, but not commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_api.atomic import fsync_folder

if TYPE_CHECKING:
    from pathlib import Path


class FencedError(Exception):
    """A newer attempt owns the run directory, or it is gone: nothing may be written any more."""


@dataclass(frozen=True)
class Fence:
    """What an attempt asks before each commit.

    Each attempt leaves one empty file named by its number; the greatest number holds the
    directory. Files are only ever added, so that no race between two attempts can lower it.
    """

    folder: Path
    """Folder of the tokens, inside the run directory."""
    attempt: int
    """Number of this attempt."""

    def take(self) -> None:
        """Make this attempt the owner of the run directory.

        Raises:
            FencedError: a newer attempt has it already.
            OSError: the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._refuse_older_than(self._newest())
        (self.folder / str(self.attempt)).touch()
        fsync_folder(self.folder)
        self.check()

    def check(self) -> None:
        """Raise `FencedError` unless this attempt still owns the run directory."""
        newest = self._newest()
        self._refuse_older_than(newest)
        if newest < self.attempt:
            raise FencedError(
                f"{self._directory}: the token of attempt {self.attempt} is gone, "
                "so nothing more is written there"
            )

    def _refuse_older_than(self, newest: int) -> None:
        if newest > self.attempt:
            raise FencedError(
                f"{self._directory}: attempt {newest} owns this run directory, "
                f"so attempt {self.attempt} may not write to it any more"
            )

    @property
    def _directory(self) -> Path:
        return self.folder.parent.parent

    def _newest(self) -> int:
        try:
            names = [entry.name for entry in self.folder.iterdir()]
        except OSError:
            return 0
        return max((int(name) for name in names if name.isdecimal()), default=0)
