"""Which run directory a command works in, told by the files that its processes have open."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.evidence.run_directory import RUN_SUMMARY
from drivetrain_trainer.soak.processes import open_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_LEVELS: Final = 3
"""Folders above an open file that are looked into: traces lie in one of their own."""
_DEPTH: Final = 6
_MOST_FOLDERS: Final = 5_000
_LOOKS_BEFORE_SEARCH: Final = 3
_CLOCK_SECONDS: Final = 1.0
"""File systems stamp by a coarser clock than ours."""


class RunFinder:
    """Finds the run directory of a tree of processes; that which is given, where one is.

    A directory counts where a process of the run has a file below it open. Where none shows
    itself that way, the working directory is searched for summaries written since the start,
    and taken if exactly one is there.
    """

    def __init__(
        self,
        given: Path | None,
        root: Path,
        pids: Callable[[], Sequence[int]],
        *,
        since: float,
    ) -> None:
        """Look for a run.

        Args:
            given: The run directory, where it is known.
            root: Where the command works.
            pids: Its living processes.
            since: Unix time of its start.
        """
        self._given = given
        self._root = root
        self._pids = pids
        self._since = since - _CLOCK_SECONDS
        self._looks = 0

    def __call__(self) -> Path | None:
        """The directory; None while it is not known."""
        if self._given is not None:
            return self._given if self._given.is_dir() else None
        self._looks += 1
        found = {folder for path in open_files(self._pids()) for folder in self._above(path)}
        if not found and self._looks > _LOOKS_BEFORE_SEARCH:
            found = set(self._search())
        return found.pop() if len(found) == 1 else None

    def _above(self, path: Path) -> Iterator[Path]:
        for folder in list(path.parents)[:_LEVELS]:
            if self._fresh(folder):
                yield folder
                return

    def _fresh(self, folder: Path) -> bool:
        try:
            return (folder / RUN_SUMMARY).lstat().st_mtime >= self._since
        except OSError:
            return False

    def _search(self) -> Iterator[Path]:
        base = len(self._root.parts)
        for folder, below, files in islice(os.walk(self._root), _MOST_FOLDERS):
            here = Path(folder)
            below[:] = [name for name in below if not name.startswith(".")]
            if len(here.parts) - base >= _DEPTH:
                below.clear()
            if RUN_SUMMARY in files and self._fresh(here):
                yield here
