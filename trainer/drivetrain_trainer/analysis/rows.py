"""Reports of a run merged into rows, one a step, streamed in order in bounded memory.

A run has been written by several attempts, each to a file of its own or at the end of a
common one. What an attempt took back is dropped as TensorBoard drops it: a session that
starts at a step voids what was written before it at that step or beyond. What remains twice
for a tag and a step is resolved by the newest.

Two passes: the survey learns the tags, the session starts, and for each piece of the files
the least step that is still to come; the second emits rows as soon as no later piece can
change them. A run whose steps ascend needs a few megabytes, whatever its length; one that
went back to its beginning without a session start is held until it has been overtaken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from drivetrain_trainer.analysis.events import Block, Piece, Restart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_FILE_STRIDE: Final = 1 << 40
"""Ordinals of a file begin at its number times this."""
_NEVER: Final = np.iinfo(np.int64).max


class Source(Protocol):
    """A file of reports in pieces; see `EventFile`."""

    passed_over: int

    @property
    def damage(self) -> tuple[str, ...]:
        """What could not be read."""

    def __iter__(self) -> Iterator[Piece]:
        """The pieces in order."""


class FileChangedError(Exception):
    """A file became another one between the two passes."""


class SourceFile(NamedTuple):
    """A file and what reads it."""

    path: Path
    read: Callable[[Path, int], Source]
    """Path and bytes to read at most -> the source."""


class Column(NamedTuple):
    """A tag that is wanted."""

    source: str
    """As it stands in the files."""
    tag: str
    """As it is given on."""
    factor: float
    """What values are multiplied by."""


@dataclass(frozen=True)
class Rows:
    """Some rows, steps ascending; each chunk goes on where the one before it ended."""

    steps: NDArray[np.int64]
    """(n,) environment steps, each once."""
    wall_times: NDArray[np.float64]
    """(n,) seconds since 1970 of the newest report at that step."""
    values: NDArray[np.float64]
    """(m, n), a row a column; NaN where there is none."""
    present: NDArray[np.bool_]
    """(m, n): whether there is one."""


@dataclass(frozen=True)
class Survey:
    """What the first pass learnt."""

    tags: Mapping[str, Path]
    """Tag -> the first file that has it."""
    sizes: tuple[int, ...]
    """Bytes of each file that were read; what has been appended since is left out."""
    restarts: tuple[Restart, ...]
    """Session starts in order."""
    floors: tuple[int, ...]
    """Least step of each piece."""
    damage: tuple[str, ...]
    """What could not be read."""
    passed_over: int
    """Values that are not scalars."""


class Recording:
    """The reports of a run over all of its files."""

    def __init__(
        self, files: Sequence[SourceFile], *, progress: Callable[[int], None] | None = None
    ) -> None:
        """Read `files`, oldest first; `progress` is told of bytes done, twice for each."""
        self._files = tuple(files)
        self._progress = progress

    def survey(self) -> Survey:
        """Read everything once.

        Raises:
            OSError: a file cannot be read.
        """
        tags: dict[str, Path] = {}
        restarts: list[Restart] = []
        floors: list[int] = []
        damage: list[str] = []
        passed_over = 0
        sizes = tuple(file.path.stat().st_size for file in self._files)
        for number, (file, size) in enumerate(zip(self._files, sizes, strict=True)):
            source = file.read(file.path, size)
            for piece in self._told(source, size):
                for block in piece.blocks:
                    for tag in block.tags:
                        tags.setdefault(tag, file.path)
                restarts += [
                    Restart(number * _FILE_STRIDE + ordinal, step)
                    for ordinal, step in piece.restarts
                ]
                floors.append(min((int(b.steps.min()) for b in piece.blocks), default=_NEVER))
            damage += source.damage
            passed_over += source.passed_over
        restarts.sort()
        return Survey(tags, sizes, tuple(restarts), tuple(floors), tuple(damage), passed_over)

    def rows(self, survey: Survey, columns: Sequence[Column]) -> Iterator[Rows]:
        """The rows in order of steps; those that have none of `columns` are left out.

        Raises:
            FileChangedError: a file is not what the survey saw.
            OSError: a file cannot be read.
        """
        later = np.minimum.accumulate(np.array([*survey.floors, _NEVER], dtype=np.int64)[::-1])
        ceilings = later[::-1][1:]
        merge = _Merge(columns, survey.restarts)
        count = 0
        for number, (file, size) in enumerate(zip(self._files, survey.sizes, strict=True)):
            for piece in self._told(file.read(file.path, size), size):
                if count == len(ceilings):
                    raise FileChangedError(f"{file.path}: it changed while it was read: try again")
                merge.add(piece.blocks, number * _FILE_STRIDE)
                yield from merge.below(int(ceilings[count]))
                count += 1
        yield from merge.below(_NEVER)

    def _told(self, source: Source, size: int) -> Iterator[Piece]:
        done = 0
        for piece in source:
            yield piece
            if self._progress is not None:
                self._progress(piece.end - done)
            done = piece.end
        if self._progress is not None:
            self._progress(size - done)


class _Merge:
    """Holds reports until their rows are complete."""

    def __init__(self, columns: Sequence[Column], restarts: Sequence[Restart]) -> None:
        self._index = {column.source: index for index, column in enumerate(columns)}
        self._factors = [column.factor for column in columns]
        self._held: list[Block] = []
        starts = np.array([step for _, step in restarts], dtype=np.int64)
        self._restarts = np.array([ordinal for ordinal, _ in restarts], dtype=np.int64)
        self._cuts = np.append(np.minimum.accumulate(starts[::-1])[::-1], _NEVER)

    def add(self, blocks: Sequence[Block], base: int) -> None:
        """Take blocks whose ordinals begin at `base`; void and unwanted reports are dropped."""
        for block in blocks:
            if self._index.keys().isdisjoint(block.tags):
                continue
            ordinals = block.ordinals + base
            moved = Block(block.tags, ordinals, block.steps, block.wall_times, block.values)
            cuts = self._cuts[np.searchsorted(self._restarts, ordinals, side="right")]
            self._hold(moved, block.steps < cuts)

    def below(self, ceiling: int) -> Iterator[Rows]:
        """The rows of all that is held at steps below `ceiling`."""
        held, self._held = self._held, []
        ready: list[Block] = []
        for block in held:
            complete = (
                block.steps < ceiling if ceiling != _NEVER else np.ones_like(block.steps, bool)
            )
            if complete.all():
                ready.append(block)
                continue
            self._hold(block, ~complete)
            if complete.any():
                ready.append(_taken(block, complete))
        if ready:
            yield self._rows(ready)

    def _hold(self, block: Block, wanted: NDArray[np.bool_]) -> None:
        if wanted.all():
            self._held.append(block)
        elif wanted.any():
            self._held.append(_taken(block, wanted))

    def _rows(self, blocks: Sequence[Block]) -> Rows:
        steps, where = np.unique(np.concatenate([b.steps for b in blocks]), return_inverse=True)
        places = np.split(where, np.cumsum([len(b.steps) for b in blocks])[:-1])
        values = np.full((len(self._factors), len(steps)), np.nan)
        present = np.zeros(values.shape, dtype=bool)
        newest = np.full(len(steps), -1, dtype=np.int64)
        wall_times = np.empty(len(steps))
        latest: dict[int, NDArray[np.int64]] = {}
        for block, place in zip(blocks, places, strict=True):
            _newest(newest, place, block.ordinals, wall_times, block.wall_times)
            for column, tag in enumerate(block.tags):
                index = self._index.get(tag)
                if index is None:
                    continue
                stamps = latest.setdefault(index, np.full(len(steps), -1, dtype=np.int64))
                _newest(stamps, place, block.ordinals, values[index], block.values[:, column])
                present[index, place] = True
        for index, factor in enumerate(self._factors):
            if factor != 1.0:
                values[index] *= factor
        return Rows(steps, wall_times, values, present)


def _newest(
    stamps: NDArray[np.int64],
    place: NDArray[np.intp],
    ordinals: NDArray[np.int64],
    target: NDArray[np.float64],
    values: NDArray[np.floating],
) -> None:
    """Put `values` into `target[place]` where their ordinals are not older than `stamps`.

    Ordinals ascend, and of several values for one place numpy keeps the last.
    """
    newer = ordinals >= stamps[place]
    place, ordinals, values = place[newer], ordinals[newer], values[newer]
    target[place] = values
    stamps[place] = ordinals


def _taken(block: Block, wanted: NDArray[np.bool_]) -> Block:
    return Block(
        block.tags,
        block.ordinals[wanted],
        block.steps[wanted],
        block.wall_times[wanted],
        block.values[wanted],
    )
