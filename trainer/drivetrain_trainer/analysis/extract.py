"""A run's metrics as one table, written whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from drivetrain_api.algorithms import ALGO_LOG_NAMES, AlgoName
from drivetrain_trainer.analysis.formats import Format, MissingLibraryError, writer_of
from drivetrain_trainer.analysis.legacy import LegacyError, Translation, translation_of
from drivetrain_trainer.analysis.rows import Column, FileChangedError
from drivetrain_trainer.analysis.runs import EVENT_FILES, RunFolderError, in_order, matches
from drivetrain_trainer.analysis.schema_check import (
    SchemaError,
    check_canonical,
    check_legacy,
    check_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from drivetrain_trainer.analysis.rows import Survey
    from drivetrain_trainer.analysis.runs import RunFolder

FILE_STEM: Final = "metrics"
"""Of the table, where no other name is asked for."""


class ExtractError(ValueError):
    """A table that cannot be made as asked; the message says why."""


REFUSALS: Final = (
    ExtractError,
    FileChangedError,
    LegacyError,
    MissingLibraryError,
    RunFolderError,
    SchemaError,
)
"""What a person can mend."""


@dataclass(frozen=True)
class LegacyMode:
    """The log is one from before the metric schema."""

    algorithm: AlgoName | None = None
    """Of the run, where the caller knows it."""


@dataclass(frozen=True)
class Extraction:
    """What became of a run."""

    output: Path
    """The table."""
    rows: int
    """Steps."""
    tags: tuple[str, ...]
    """Columns beside step and wall time."""
    notes: tuple[str, ...]
    """What was left out and why, for a person."""


@dataclass(frozen=True)
class _Plan:
    columns: tuple[Column, ...]
    notes: tuple[str, ...]


def extract(
    folder: RunFolder,
    output: Path | None = None,
    form: Format = Format.CSV,
    *,
    patterns: Sequence[str] = (),
    legacy: LegacyMode | None = None,
    progress: Callable[[int], None] | None = None,
) -> Extraction:
    """Write the metrics of a run to a file.

    Args:
        folder: The run.
        output: The table; ``metrics.<format>`` in the run directory where None.
        form: Its form.
        patterns: Canonical tags or patterns of them that are wanted; all where empty.
        legacy: Given for a log from before the metric schema.
        progress: Told of bytes done; each byte of the run's files counts twice.

    Raises:
        SchemaError: the log is not what it must be; nothing is written.
        LegacyError: a legacy tag needs to know the algorithm.
        ExtractError: no metrics, no such tags, or an output that is one of the inputs.
        MissingLibraryError: the format needs a library that is not there.
        OSError: a file cannot be read or written.
    """
    target = output or folder.path / f"{FILE_STEM}.{form.value}"
    _refuse_input(folder, target)
    recording = folder.recording(progress)
    survey = recording.survey()
    plan = _legacy_plan(folder, survey, legacy) if legacy else _canonical_plan(folder, survey)
    columns = _wanted(folder, plan.columns, patterns)
    tags = tuple(column.tag for column in columns)
    count = 0
    with _whole_or_not(target) as file:
        writer = writer_of(form, file, tags)
        for rows in recording.rows(survey, columns):
            writer.write(rows)
            count += len(rows.steps)
        writer.close()
    notes = (*plan.notes, *survey.damage)
    if survey.passed_over:
        notes += (f"{survey.passed_over} values that are no scalars are left out",)
    return Extraction(target, count, tags, notes)


def algorithm_of(folder: RunFolder, told: AlgoName | None) -> AlgoName | None:
    """The algorithm of a legacy run: what its files say, or else what the caller says.

    Raises:
        LegacyError: both say, and not the same.
    """
    for path, content in (
        (folder.config_path, folder.raw_config),
        (folder.summary_path, folder.raw_summary),
    ):
        found = _algorithm(content)
        if found is None:
            continue
        if told is not None and told is not found:
            raise LegacyError(f"--algo {told.value}, but {path} says {found.value}: leave it out")
        return found
    return told


def _algorithm(content: Mapping[str, object] | None) -> AlgoName | None:
    algo = None if content is None else content.get("algo")
    if isinstance(algo, dict):
        algo = algo.get("name")
    by_name = {name: algo_name for algo_name, name in ALGO_LOG_NAMES.items()}
    by_name |= {algo_name.value: algo_name for algo_name in AlgoName}
    return by_name.get(algo) if isinstance(algo, str) else None


def _canonical_plan(folder: RunFolder, survey: Survey) -> _Plan:
    check_canonical(folder.stamp, folder.summary_path, survey.tags, folder.schema)
    check_manifest(folder.summary_path, folder.raw_summary)
    _ = folder.summary  # whatever else was altered there
    return _Plan(tuple(Column(tag, tag, 1.0) for tag in in_order(survey.tags)), ())


def _legacy_plan(folder: RunFolder, survey: Survey, legacy: LegacyMode) -> _Plan:
    if folder.jsonl is not None:
        raise SchemaError(
            f"{folder.jsonl}: such a file has been written since the metric schema alone: this is "
            "no legacy run: leave --legacy-unversioned out"
        )
    check_legacy(folder.stamp, folder.summary_path, survey.tags, folder.schema)
    translation = translation_of(survey.tags, algorithm_of(folder, legacy.algorithm))
    source_of = {new.tag: old for old, new in translation.successors.items()}
    columns = tuple(
        Column(source_of[tag], tag, translation.successors[source_of[tag]].factor)
        for tag in in_order(source_of)
    )
    return _Plan(columns, tuple(_left_out(translation)))


def _left_out(translation: Translation) -> Iterator[str]:
    for tag in translation.retired:
        yield f"{tag}: retired without a successor: left out"
    for tag, preferred in translation.outdone.items():
        yield f"{tag}: the same field as {preferred}, which is preferred: left out"


def _wanted(
    folder: RunFolder, columns: tuple[Column, ...], patterns: Sequence[str]
) -> tuple[Column, ...]:
    if not columns:
        raise ExtractError(f"{folder.path} holds no metrics yet")
    if not patterns:
        return columns
    for pattern in patterns:
        if not any(matches(column.tag, (pattern,)) for column in columns):
            shown = ", ".join(column.tag for column in columns)
            raise ExtractError(f"no tag of {folder.path} fits {pattern!r}; it has {shown}")
    return tuple(column for column in columns if matches(column.tag, patterns))


def _refuse_input(folder: RunFolder, target: Path) -> None:
    inputs = [*folder.event_files, folder.summary_path, folder.config_path]
    inputs += [] if folder.jsonl is None else [folder.jsonl]
    if target.is_dir():
        raise ExtractError(f"{target} is a directory: name a file")
    if target.resolve() in {path.resolve() for path in inputs} or target.match(EVENT_FILES):
        raise ExtractError(f"{target} is one of the run's own files: name another output")


@contextmanager
def _whole_or_not(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name once it is complete; on failure nothing is left of it.

    Raises:
        OSError: naming `path`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise
