"""Files in /dev/shm that were made since a soak began."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.soak.processes import open_files

if TYPE_CHECKING:
    from collections.abc import Iterator

SHM: Final = Path("/dev/shm")  # noqa: S108 - the mount itself is looked at
_MOST_FILES: Final = 10_000
_BLOCK: Final = 512


class SharedFiles:
    """This user's new files in a folder of shared memory.

    Other programs of the user that make files there meanwhile are counted as well: what lies
    there cannot be told apart once its maker has closed it.
    """

    def __init__(self, folder: Path = SHM) -> None:
        self.folder = folder
        self._user = os.getuid()
        self._before = {(path, facts.st_ino) for path, facts in _files(folder)}

    def new(self) -> list[tuple[Path, int]]:
        """Path and bytes in memory of each."""
        return [
            (path, facts.st_blocks * _BLOCK)
            for path, facts in _files(self.folder)
            if facts.st_uid == self._user and (path, facts.st_ino) not in self._before
        ]

    def bytes(self) -> int:
        """Memory that they take together."""
        return sum(size for _, size in self.new())

    def left(self) -> list[Path]:
        """Those that no living process has open or mapped: nobody will remove them."""
        found = {path for path, _ in self.new()}
        if found:
            found -= _held(found)
        return sorted(found)


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    todo = [folder]
    count = 0
    while todo:
        try:
            entries = list(os.scandir(todo.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(Path(entry.path))
                    continue
                facts = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            count += 1
            if count > _MOST_FILES:
                return
            yield Path(entry.path), facts


def _held(paths: set[Path]) -> set[Path]:
    """Those of the paths that a process which we may look into has open or mapped."""
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]
    held = open_files(pids) & paths
    for pid in pids:
        try:
            maps = Path(f"/proc/{pid}/maps").read_bytes()
        except OSError:
            continue
        held |= {path for path in paths - held if os.fsencode(path) in maps}
    return held
