"""Reads the runs that a figure is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_trainer.analysis.choice import NoRunError, runs_below
from drivetrain_trainer.analysis.grouping import GroupingError, group_of
from drivetrain_trainer.analysis.plot import PlottedRun
from drivetrain_trainer.analysis.rows import FileChangedError
from drivetrain_trainer.analysis.runs import RunFolder, RunFolderError
from drivetrain_trainer.analysis.schema_check import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

REFUSALS: Final = (NoRunError, GroupingError, RunFolderError, SchemaError, FileChangedError)
"""What a person can mend: one message each."""
_MANY: Final = 4
"""From so many runs on, their reading is told of."""


def load(
    paths: Sequence[Path],
    *,
    tags: Sequence[str],
    keys: Sequence[str],
    tell: Callable[[str], None],
) -> list[PlottedRun]:
    """Read the runs at, or below, the paths; each once.

    Args:
        paths: Run directories, or folders with some.
        tags: Tags and patterns that are read.
        keys: Settings by whose values runs are grouped; each run alone where empty.
        tell: Given words on progress, and on damage that was read around.

    Raises:
        NoRunError, GroupingError, RunFolderError, SchemaError, FileChangedError: see there.
        OSError: a file cannot be read.
    """
    found = list(dict.fromkeys(run for path in paths for run in runs_below(path)))
    names = names_of(found)
    runs = []
    for number, path in enumerate(found, start=1):
        if len(found) >= _MANY:
            tell(f"reading {number} of {len(found)}: {path}")
        folder = RunFolder.open(path)
        metrics = folder.metrics(tags)
        for damage in metrics.damage:
            tell(damage)
        group = group_of(folder, keys) if keys else names[path]
        algo = folder.summary.algo.value if folder.summary is not None else None
        runs.append(PlottedRun(names[path], group, metrics.by_tag, algo))
    return runs


def names_of(paths: Sequence[Path]) -> dict[Path, str]:
    """The shortest ends of the paths that tell them apart."""
    resolved = {path: path.resolve() for path in paths}
    depth = 1
    while True:
        names = {path: "/".join(at.parts[-depth:]) for path, at in resolved.items()}
        if len(set(names.values())) == len(paths) or depth > max(
            len(at.parts) for at in resolved.values()
        ):
            return names
        depth += 1
