"""What a user names is a run directory, or a folder with runs somewhere below it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.analysis.runs import EVENT_FILES
from drivetrain_trainer.evidence.run_directory import RUN_CONFIG, RUN_SUMMARY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEEPEST: Final = 5
"""Folders below the named one that are searched: storage/logs/<algorithm>/<task>/<run>."""
MARKS: Final = (RUN_SUMMARY, RUN_CONFIG)
"""A folder that holds one of these is a run directory."""


class NoRunError(ValueError):
    """A path without a run; the message names it and what was looked for."""


def is_run(path: Path) -> bool:
    """Whether the folder is a run directory, or was one before it had a summary."""
    return any((path / mark).is_file() for mark in MARKS) or any(path.glob(EVENT_FILES))


def runs_below(path: Path) -> list[Path]:
    """The run that `path` is, or those below it, the newest last.

    A run is as new as the last write of its summary.

    Raises:
        NoRunError: there is none.
    """
    if not path.exists():
        raise NoRunError(f"{path} does not exist; a run directory is needed, or a folder with some")
    if not path.is_dir():
        raise NoRunError(f"{path} is a file; a run directory is needed, or a folder with some")
    found = [path] if is_run(path) else sorted(_search(path, DEEPEST), key=_written)
    if not found:
        raise NoRunError(
            f"no run in {path}, nor in {DEEPEST} levels of folders below it: "
            f"a run directory holds {' and '.join(MARKS)}"
        )
    return found


def _search(path: Path, depth: int) -> Iterator[Path]:
    try:
        folders = [entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink()]
    except OSError:
        return
    for folder in folders:
        if folder.name.startswith("."):
            continue
        if is_run(folder):
            yield folder
        elif depth > 1:
            yield from _search(folder, depth - 1)


def _written(run: Path) -> tuple[float, str]:
    """When the run last wrote; the name decides between equals."""
    times = [0.0]
    for name in (*MARKS, "."):
        try:
            times.append(os.stat(run / name).st_mtime)  # noqa: PTH116 - one call, no Path a file
        except OSError:
            continue
    return max(times), run.name
