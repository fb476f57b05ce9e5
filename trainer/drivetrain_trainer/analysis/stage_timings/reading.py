"""Timings of several artifact directories, each run with the hardware that it names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from drivetrain_api.timings.model import TIMINGS
from drivetrain_api.timings.store import TimingsDirectory, TimingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from drivetrain_api.timings.hardware import HardwareRecord
    from drivetrain_api.timings.model import StageRun
    from drivetrain_api.timings.store import LoadedTimings

_SHOWN: Final = 3


class NoTimingsError(Exception):
    """A directory without timings; the message says where there are some."""


REFUSALS: Final = (NoTimingsError, TimingsError)
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
    """As it was given."""
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
    """The timings of these artifact directories; never of folders above or below them.

    Raises:
        NoTimingsError: a directory has none.
        TimingsError: a file is torn, foreign, of a later version or unreadable.
    """
    given = tuple(dict.fromkeys(directories))
    runs: list[TimedRun] = []
    descriptions: dict[str, HardwareRecord] = {}
    for directory in given:
        loaded = _load(directory)
        runs += _runs_of(directory, loaded)
        descriptions |= loaded.hardware.hardware
    named = {run.hardware.id for run in runs}
    kept = {id_: record for id_, record in descriptions.items() if id_ in named}
    return Report(given, tuple(runs), kept)


def _load(directory: Path) -> LoadedTimings:
    if not (directory / TIMINGS).exists():
        raise NoTimingsError(f"{directory}: no {TIMINGS} in this directory{_hint(directory)}")
    return TimingsDirectory(directory).load()


def _hint(directory: Path) -> str:
    below = sorted(path.parent for path in directory.glob(f"*/**/{TIMINGS}"))
    if not below:
        return "; name the artifact directory of an experiment"
    more = f" and {len(below) - _SHOWN} more" if len(below) > _SHOWN else ""
    return f"; there are timings in {', '.join(map(str, below[:_SHOWN]))}{more}"


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
