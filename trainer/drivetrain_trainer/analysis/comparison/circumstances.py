"""What the sides were run with: settings and versions that differ, times by hardware."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_api.timings.model import TIMINGS
from drivetrain_api.timings.store import TimingsDirectory, TimingsError
from drivetrain_trainer.analysis.stage_timings.words import of_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from drivetrain_api.timings.model import StageRun
    from drivetrain_api.timings.store import LoadedTimings
    from drivetrain_trainer.analysis.comparison.reading import ComparedRun

UNKNOWN: Final = "not recorded"
TRAINING_LOOP: Final = "training loop (run_summary.json)"
"""Stage of runs that have no timings: seconds of the latest attempt."""
_EACH_OWN: Final = (
    "seed",
    "algo.seed",
    "env.seed",
    "experiment",
    "task.name",
    "training.log_dir",
    "training.log_root",
    "training.trace_output_dir",
    "training.wandb_",
)
"""Settings that differ from run to run and tell nothing: these, and what begins with them."""


@dataclass(frozen=True)
class Difference:
    """A setting, or the version of a package, that is not the same on all sides."""

    name: str
    values: tuple[str, ...]
    """By side; several between commas where runs of one side differ among themselves."""


@dataclass(frozen=True)
class StageTime:
    """A stage of a side on one kind of hardware."""

    side: str
    stage: str
    hardware: str
    runs: int
    mean_seconds: float
    total_seconds: float


@dataclass(frozen=True)
class Circumstances:
    """Beside the scores."""

    settings: tuple[Difference, ...]
    versions: tuple[Difference, ...]
    common_versions: Mapping[str, str]
    """Package -> version that all runs share."""
    times: tuple[StageTime, ...]
    notes: tuple[str, ...]


def look(runs: Sequence[ComparedRun]) -> Circumstances:
    """What the runs that take part were run with."""
    names = list(dict.fromkeys(run.side for run in runs))
    versions = _differences(runs, names, _versions)
    told = {one.name for one in versions}
    times, notes = _times(runs)
    return Circumstances(
        settings=_settings(runs, names),
        versions=versions,
        common_versions={
            name: value
            for run in runs[:1]
            for name, value in sorted(_versions(run).items())
            if name not in told
        },
        times=times,
        notes=(*notes, *_hardware_note(times)),
    )


def _versions(run: ComparedRun) -> Mapping[str, str]:
    return {} if run.config is None else run.config.run.versions


def _settings(runs: Sequence[ComparedRun], names: Sequence[str]) -> tuple[Difference, ...]:
    """Those that differ on some task: a task's own defaults are no difference of sides."""
    found: dict[str, Difference] = {}
    tasks = list(dict.fromkeys(run.task for run in runs))
    for task in tasks:
        of_task = [run for run in runs if run.task == task]
        for one in _differences(of_task, names, lambda run: run.settings):
            if not any(_is_or_below(one.name, own) for own in _EACH_OWN):
                known = found.get(one.name)
                found[one.name] = one if known is None else _joined(known, one)
    return tuple(found[name] for name in sorted(found))


def _is_or_below(name: str, own: str) -> bool:
    return name == own or name.startswith(own if own.endswith("_") else f"{own}.")


def _joined(one: Difference, other: Difference) -> Difference:
    pairs = zip(one.values, other.values, strict=True)
    return Difference(one.name, tuple(", ".join(dict.fromkeys(pair)) for pair in pairs))


def _differences(
    runs: Sequence[ComparedRun],
    names: Sequence[str],
    read: Callable[[ComparedRun], Mapping[str, str]],
) -> tuple[Difference, ...]:
    by_side: dict[str, list[Mapping[str, str]]] = {name: [] for name in names}
    for run in runs:
        if run.config is not None:
            by_side[run.side].append(read(run))
    keys = sorted({key for values in by_side.values() for one in values for key in one})
    found = []
    for key in keys:
        columns = tuple(_words(one.get(key, UNKNOWN) for one in by_side[name]) for name in names)
        if len({*columns} - {""}) > 1 or any("\n" in column for column in columns):
            shown = tuple(column.replace("\n", ", ") or UNKNOWN for column in columns)
            found.append(Difference(key, shown))
    return tuple(found)


def _words(values: Iterable[str]) -> str:
    """Each value once, a line each."""
    return "\n".join(sorted({value.replace("\n", " ") for value in values}))


def _times(runs: Sequence[ComparedRun]) -> tuple[tuple[StageTime, ...], list[str]]:
    spent: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    notes: list[str] = []
    loaded: dict[Path, LoadedTimings | None] = {}
    once: set[tuple[str, Path, str]] = set()
    for run in runs:
        directory = _artifacts(run)
        if directory not in loaded:
            loaded[directory] = _load(directory, notes)
        found = loaded[directory]
        told = False
        for stage, record in _records(run, directory, found):
            if record.run_idx is None and directory != run.path:
                if (run.side, directory, stage) in once:
                    continue
                once.add((run.side, directory, stage))
            told |= stage.endswith("_train")
            spent[run.side, stage, _hardware(record, found)].append(record.seconds)
        summary = run.summary
        if not told and summary is not None and summary.training_wall_time_sec is not None:
            key = (run.side, TRAINING_LOOP, _host(run))
            spent[key].append(summary.training_wall_time_sec)
    rows = tuple(
        StageTime(side, stage, hardware, len(all_), sum(all_) / len(all_), sum(all_))
        for (side, stage, hardware), all_ in spent.items()
    )
    return rows, notes


def _artifacts(run: ComparedRun) -> Path:
    """The artifact directory: the folder above the run where it is one of an experiment."""
    return run.path.parent if run.run_idx is not None else run.path


def _load(directory: Path, notes: list[str]) -> LoadedTimings | None:
    if not (directory / TIMINGS).exists():
        return None
    try:
        return TimingsDirectory(directory).load()
    except TimingsError as error:
        notes.append(f"Timings are not shown: {error}")
        return None


def _records(
    run: ComparedRun, directory: Path, found: LoadedTimings | None
) -> Iterable[tuple[str, StageRun]]:
    if found is None:
        return
    for stage, content in found.timings.root.items():
        for record in content.runs:
            if directory == run.path or record.run_idx in (None, run.run_idx):
                yield stage, record


def _hardware(record: StageRun, found: LoadedTimings | None) -> str:
    if record.hardware_id is None:
        return "not recorded (legacy)" if record.legacy else UNKNOWN
    known = None if found is None else found.hardware.hardware.get(record.hardware_id)
    if known is None:
        return record.hardware_id
    # Numbers of batch jobs would make each run's hardware another one.
    return of_record(known.model_copy(update={"jobs": ()}))


def _host(run: ComparedRun) -> str:
    if run.config is None or run.config.run.host is None:
        return UNKNOWN
    host, device = run.config.run.host, run.config.run.resolved_devices.learner.resolved
    return f"{host.cpu_model}, {host.usable_cpus} CPUs, learner on {device}"


def _hardware_note(times: Sequence[StageTime]) -> list[str]:
    training = [one for one in times if one.stage.endswith("_train") or one.stage == TRAINING_LOOP]
    kinds: dict[str, set[str]] = defaultdict(set)
    for one in training:
        kinds[one.side].add(one.hardware)
    distinct = {frozenset(found) for found in kinds.values()}
    if len(distinct) > 1 or any(len(found) > 1 for found in kinds.values()):
        return [
            "The runs were not all trained on the same hardware: compare their times with care."
        ]
    return []
