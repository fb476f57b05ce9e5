"""Timings of several artifact directories, each run with the hardware that it names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from drivetrain_api.timings.model import TIMINGS
from drivetrain_api.timings.store import TimingsDirectory, TimingsError
from drivetrain_trainer.analysis.suites import SuiteRecordError, record_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from drivetrain_api.timings.hardware import HardwareRecord
    from drivetrain_api.timings.model import StageRun
    from drivetrain_api.timings.store import LoadedTimings

_SHOWN: Final = 3


class NoTimingsError(Exception):
    """A directory without timings; the message says where there are some."""


REFUSALS: Final = (NoTimingsError, SuiteRecordError, TimingsError)
"""What reading may refuse."""


class HardwareKind(StrEnum):
    """What is known of a run's hardware."""

    DESCRIBED = "described"
    """timings_hardware.json has its description."""
    LEGACY = "legacy"
    """A historical file has memory sizes of the machine of then, and nothing else."""
    UNKNOWN = "unknown"
    """Nothing: the run names none, or one that is not described."""


@dataclass(frozen=True)
class Hardware:
    """Where a run was measured; equal for runs that may be summed up."""

    kind: HardwareKind
    id: str | None = None
    """The id that the run names."""
    system_ram_gb: float | None = None
    """Legacy alone, as written."""
    gpu_ram_gb: float | None = None
    """Legacy alone, as written."""


@dataclass(frozen=True)
class TimedRun:
    """A record, and where it is from."""

    directory: Path
    """As it was given, or below the suite's root that was."""
    stage: str
    run: StageRun
    hardware: Hardware


@dataclass(frozen=True)
class Report:
    """Everything that was read, in the order given."""

    directories: tuple[Path, ...]
    runs: tuple[TimedRun, ...]
    descriptions: Mapping[str, HardwareRecord]
    """By id; those that a run names."""


def read(directories: Iterable[Path]) -> Report:
    """The timings of artifact directories, and of those that suites name.

    Args:
        directories: Artifact directories, of which no folder above or below is read; or roots of
            suites, whose record names the artifact directories of its members.

    Raises:
        NoTimingsError: a directory has none, or no artifact directory of a suite.
        SuiteRecordError: a suite's record is torn, foreign, of a later version or unreadable.
        TimingsError: the same of a file of timings.
    """
    given = tuple(dict.fromkeys(path for one in directories for path in _named(one)))
    runs: list[TimedRun] = []
    descriptions: dict[str, HardwareRecord] = {}
    for directory in given:
        loaded = _load(directory)
        runs += _runs_of(directory, loaded)
        descriptions |= loaded.hardware.hardware
    named = {run.hardware.id for run in runs}
    kept = {id_: record for id_, record in descriptions.items() if id_ in named}
    return Report(given, tuple(runs), kept)


def _named(directory: Path) -> list[Path]:
    """The artifact directories that a directory stands for."""
    record = None if (directory / TIMINGS).exists() else record_in(directory)
    if record is None:
        return [directory]
    folders = dict.fromkeys(directory / member.artifact_directory for member in record.members)
    begun = [folder for folder in folders if (folder / TIMINGS).exists()]
    if not begun:
        words = f"no {TIMINGS} yet in an artifact directory of suite {record.name}"
        raise NoTimingsError(f"{directory}: {words}: {_listed(list(folders))}")
    return begun


def _load(directory: Path) -> LoadedTimings:
    if not (directory / TIMINGS).exists():
        raise NoTimingsError(f"{directory}: no {TIMINGS} in this directory{_hint(directory)}")
    return TimingsDirectory(directory).load()


def _hint(directory: Path) -> str:
    below = sorted(path.parent for path in directory.glob(f"*/**/{TIMINGS}"))
    if not below:
        return "; name the artifact directory of an experiment"
    return f"; there are timings in {_listed(below)}"


def _listed(folders: Sequence[Path]) -> str:
    more = f" and {len(folders) - _SHOWN} more" if len(folders) > _SHOWN else ""
    return f"{', '.join(map(str, folders[:_SHOWN]))}{more}"


def _runs_of(directory: Path, loaded: LoadedTimings) -> list[TimedRun]:
    return [
        TimedRun(directory, name, run, _hardware(run, loaded.hardware.hardware))
        for name, stage in loaded.timings.root.items()
        for run in stage.runs
    ]


def _hardware(run: StageRun, known: Mapping[str, HardwareRecord]) -> Hardware:
    if run.hardware_id is not None:
        there = run.hardware_id in known
        return Hardware(
            HardwareKind.DESCRIBED if there else HardwareKind.UNKNOWN, id=run.hardware_id
        )
    if run.legacy:
        return Hardware(
            HardwareKind.LEGACY, system_ram_gb=run.system_ram_gb, gpu_ram_gb=run.gpu_ram_gb
        )
    return Hardware(HardwareKind.UNKNOWN)
