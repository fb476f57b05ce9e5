"""A run directory as analysis reads it: live, finished or killed."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from drivetrain_api.artifacts.base import ArtifactError, ArtifactModel
from drivetrain_api.artifacts.run_config import MetricFamily, RunConfig
from drivetrain_api.artifacts.run_summary import RunSummary
from drivetrain_api.metrics import METRICS, Family, MetricFamilyError, MetricSchema, Owner
from drivetrain_trainer.analysis.events import EventFile
from drivetrain_trainer.analysis.jsonl import JsonlFile
from drivetrain_trainer.analysis.rows import Column, Recording, SourceFile
from drivetrain_trainer.analysis.schema_check import (
    SchemaError,
    check_canonical,
    read_object,
    stamp_of,
)
from drivetrain_trainer.evidence.run_directory import RUN_CONFIG, RUN_SUMMARY
from drivetrain_trainer.telemetry.backends.jsonl import FILE_NAME as JSONL_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

from drivetrain_trainer.analysis.rows import Survey

EVENT_FILES: Final = "events.out.tfevents.*"
TRACES: Final = "traces"

_Model = TypeVar("_Model", bound=ArtifactModel)

_ORDER: Final = {tag: index for index, tag in enumerate(METRICS)}


class RunFolderError(ValueError):
    """A path that is no run directory; the message says what it is instead."""


@dataclass(frozen=True)
class Series:
    """One tag over the steps of a run."""

    steps: NDArray[np.int64]
    """(n,) environment steps, ascending, each once."""
    wall_times: NDArray[np.float64]
    """(n,) seconds since 1970."""
    values: NDArray[np.float64]
    """(n,) in the unit of the schema; NaN and infinities as they were logged."""

    def __len__(self) -> int:
        """The number of points."""
        return len(self.steps)


@dataclass(frozen=True)
class Metrics:
    """Metrics of a run in memory."""

    by_tag: Mapping[str, Series]
    """Canonical tag -> its series, in the schema's order."""
    damage: tuple[str, ...] = ()
    """What could not be read of the files, for a person; empty where all was whole."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags that the run has logged, in the schema's order."""
        return tuple(self.by_tag)

    def __contains__(self, tag: object) -> bool:
        """Whether the run has logged the tag."""
        return tag in self.by_tag

    def series(self, tag: str) -> Series:
        """The series of a tag; an empty one where the run has not logged it.

        Raises:
            UnknownMetricError: neither the schema nor the run has the tag; names near ones.
        """
        found = self.by_tag.get(tag)
        if found is None:
            MetricSchema().lookup(tag)
            return Series(np.empty(0, np.int64), np.empty(0), np.empty(0))
        return found


@dataclass(frozen=True)
class RunFolder:
    """What lies in a run directory; files are read when they are asked for."""

    path: Path
    """The directory."""
    event_files: tuple[Path, ...]
    """TensorBoard event files of all attempts, oldest first."""
    jsonl: Path | None
    """``metrics.jsonl``, where the run has one."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """The run directory at `path`.

        Raises:
            RunFolderError: there is none, or it holds no run.
        """
        if not path.is_dir():
            what = "a file" if path.exists() else "not there"
            raise RunFolderError(f"{path} is {what}: name a run directory")
        events = tuple(sorted(file for file in path.glob(EVENT_FILES) if file.is_file()))
        jsonl = path / JSONL_FILE
        found = cls(path=path, event_files=events, jsonl=jsonl if jsonl.is_file() else None)
        if not events and found.jsonl is None and not found.summary_path.exists():
            raise RunFolderError(_no_run(path))
        return found

    @property
    def summary_path(self) -> Path:
        """Path of ``run_summary.json``, which may be absent."""
        return self.path / RUN_SUMMARY

    @property
    def config_path(self) -> Path:
        """Path of ``run_config.json``, which may be absent."""
        return self.path / RUN_CONFIG

    @cached_property
    def raw_summary(self) -> Mapping[str, object] | None:
        """Content of ``run_summary.json``, of whatever version; None where it is absent.

        Raises:
            SchemaError: it is damaged.
        """
        return read_object(self.summary_path)

    @cached_property
    def raw_config(self) -> Mapping[str, object] | None:
        """Content of ``run_config.json``, of whatever version; None where it is absent.

        Raises:
            SchemaError: it is damaged.
        """
        return read_object(self.config_path)

    @cached_property
    def summary(self) -> RunSummary | None:
        """The run summary; None where the run has none.

        Raises:
            SchemaError: it is damaged, or of a version that is not supported.
        """
        if self.raw_summary is None or self.stamp is None:
            return None
        return _model(RunSummary, self.summary_path)

    @cached_property
    def config(self) -> RunConfig | None:
        """The run configuration; None where the run has none yet.

        Raises:
            SchemaError: it is damaged, or of a version that is not supported.
        """
        return None if self.raw_config is None else _model(RunConfig, self.config_path)

    @property
    def stamp(self) -> int | None:
        """Metric schema version of the run; None where it has no stamp.

        Raises:
            SchemaError: the version is not supported.
        """
        return stamp_of(self.summary_path, self.raw_summary)

    @property
    def traces(self) -> Path | None:
        """Folder of the timeline traces, where there is one."""
        told = None if self.raw_summary is None else self.raw_summary.get("trace_path")
        candidates = [self.path / TRACES]
        if isinstance(told, str) and "\0" not in told:
            candidates.insert(0, self.path / told)
        return next((folder for folder in candidates if folder.is_dir()), None)

    @property
    def schema(self) -> MetricSchema:
        """The metric schema with the families that the run's environment declared.

        Raises:
            SchemaError: ``run_config.json`` is damaged, or its families cannot be.
        """
        run = {} if self.raw_config is None else self.raw_config.get("run")
        told = run.get("metric_families", []) if isinstance(run, dict) else []
        try:
            families = TypeAdapter(tuple[MetricFamily, ...]).validate_python(
                told, extra="ignore", strict=False
            )
            return MetricSchema().declaring(
                Family(family.prefix, family.unit, Owner.ENVIRONMENT, family.reduction)
                for family in families
            )
        except (ValidationError, MetricFamilyError) as error:
            raise SchemaError(f"{self.config_path}: run.metric_families: {error}") from error

    @property
    def bytes_to_read(self) -> int:
        """Bytes of the files that hold the metrics."""
        return sum(path.stat().st_size for path in self._metric_files)

    @property
    def _metric_files(self) -> tuple[Path, ...]:
        """Event files, or else ``metrics.jsonl``."""
        return self.event_files or (() if self.jsonl is None else (self.jsonl,))

    def recording(self, progress: Callable[[int], None] | None = None) -> Recording:
        """All reports of the run: of its event files, or else of ``metrics.jsonl``.

        Args:
            progress: Told of bytes done; each byte counts twice.
        """
        read = _event_file if self.event_files else _jsonl_file
        files = [SourceFile(path, read) for path in self._metric_files]
        return Recording(files, progress=progress)

    def metrics(self, tags: Iterable[str] | None = None) -> Metrics:
        """Metrics of the run, checked against metric schema 1.

        Args:
            tags: Tags or patterns (``Perf/*``) that are wanted; all where None.

        Raises:
            SchemaError: the log is not wholly one of metric schema 1.
            OSError: a file cannot be read.
        """
        recording = self.recording()
        survey = recording.survey()
        check_canonical(self.stamp, self.summary_path, survey.tags, self.schema)
        wanted = tuple(tags) if tags is not None else ("*",)
        columns = [Column(tag, tag, 1.0) for tag in in_order(survey.tags) if matches(tag, wanted)]
        return Metrics(
            MappingProxyType(_series(recording, survey, columns)),
            damage=survey.damage,
        )


def in_order(tags: Iterable[str]) -> list[str]:
    """Tags in the schema's order, then members of families by name."""
    return sorted(tags, key=lambda tag: (_ORDER.get(tag, len(_ORDER)), tag))


def matches(tag: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns is the tag or, with ``*`` and ``?``, fits it."""
    return any(fnmatch.fnmatchcase(tag, pattern) for pattern in patterns)


def _series(recording: Recording, survey: Survey, columns: list[Column]) -> dict[str, Series]:
    parts: list[list[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]]] = [
        [] for _ in columns
    ]
    for rows in recording.rows(survey, columns):
        for part, values, present in zip(parts, rows.values, rows.present, strict=True):
            if present.all():
                part.append((rows.steps, rows.wall_times, values))
            else:
                part.append((rows.steps[present], rows.wall_times[present], values[present]))
    return {
        column.tag: Series(*(np.concatenate(arrays) for arrays in zip(*part, strict=True)))
        for column, part in zip(columns, parts, strict=True)
        if part
    }


def _no_run(path: Path) -> str:
    below = sorted({file.parent for file in path.glob(f"**/{RUN_SUMMARY}")})
    if below:
        shown = ", ".join(str(folder) for folder in below[:3])
        return f"{path} holds no run itself; below it are {len(below)}: {shown}: name one"
    return f"{path} holds no run: neither {RUN_SUMMARY} nor {EVENT_FILES} nor {JSONL_FILE}"


def _model(kind: type[_Model], path: Path) -> _Model:
    try:
        return kind.from_json(path.read_bytes())
    except ArtifactError as error:
        raise SchemaError(f"{path}: {error}") from error


def _event_file(path: Path, limit: int) -> EventFile:
    return EventFile(path, limit=limit)


def _jsonl_file(path: Path, limit: int) -> JsonlFile:
    return JsonlFile(path, limit=limit)
