"""The report as a table for a person, or as one JSON object for a program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

from drivetrain_trainer.analysis.quantities import ms, span
from drivetrain_trainer.analysis.stage_timings import words

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from drivetrain_trainer.analysis.stage_timings.reading import Hardware, Report, TimedRun

_HEAD: Final = ("RUNS", "TOTAL", "MEAN", "LEAST", "GREATEST")
_SHORT: Final = 10.0
"""Seconds from which on whole ones are enough."""

_Key = TypeVar("_Key", bound="Hashable")


def duration(seconds: float) -> str:
    """A time with two or three digits where it is short: 120 ms, 2.5 s, 4 min 20 s."""
    if seconds < 1.0:
        return ms(1000 * seconds)
    return f"{seconds:.2g} s" if seconds < _SHORT else span(seconds)


def as_text(report: Report, *, by_hardware: bool = False) -> str:
    """A table for each directory, or for each hardware, and what the hardware is.

    Args:
        report: What was read.
        by_hardware: One table for each hardware, over all directories.
    """
    if not report.runs:
        return "no stage has been recorded yet"
    if by_hardware:
        sections = [
            f"{words.short(hardware)}: {words.described(hardware, report.descriptions)}\n"
            + _of_hardware(runs, several=len(report.directories) > 1)
            for hardware, runs in grouped(report.runs, lambda run: run.hardware)
        ]
        return "\n\n".join(sections)
    sections = [
        f"{directory}\n{_of_directory(runs)}"
        for directory, runs in grouped(report.runs, lambda run: run.directory)
    ]
    return "\n\n".join([*sections, _legend(report)])


def _of_directory(runs: Sequence[TimedRun]) -> str:
    rows = [
        [stage, *_figures(measured), _hardware_of(measured)]
        for stage, measured in grouped(runs, lambda run: run.stage)
    ]
    return _table(["STAGE", *_HEAD, "HARDWARE"], rows)


def _of_hardware(runs: Sequence[TimedRun], *, several: bool) -> str:
    rows = [
        [stage, *_figures(measured), *([_directories_of(measured)] if several else [])]
        for stage, measured in grouped(runs, lambda run: run.stage)
    ]
    return _table(["STAGE", *_HEAD, *(["DIRECTORIES"] if several else [])], rows)


def _figures(runs: Sequence[TimedRun]) -> list[str]:
    seconds = [run.run.seconds for run in runs]
    total = sum(seconds)
    times = (total, total / len(seconds), min(seconds), max(seconds))
    return [str(len(seconds)), *map(duration, times)]


def _hardware_of(runs: Sequence[TimedRun]) -> str:
    return ", ".join(dict.fromkeys(words.short(run.hardware) for run in runs))


def _directories_of(runs: Sequence[TimedRun]) -> str:
    return ", ".join(dict.fromkeys(str(run.directory) for run in runs))


def _legend(report: Report) -> str:
    found = dict.fromkeys(run.hardware for run in report.runs)
    rows = [[words.short(one), words.described(one, report.descriptions)] for one in found]
    return f"Hardware\n{_table([], rows)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two blanks apart; figures to the right."""
    lines = [head, *rows] if head else list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    to_the_right = {place for place, name in enumerate(head) if name in _HEAD}
    return "\n".join(
        "  "
        + "  ".join(
            cell.rjust(width) if place in to_the_right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def as_json(report: Report, *, by_hardware: bool = False) -> str:
    """One object: `directories` with their stages and runs, and `hardware` by id.

    Args:
        report: What was read.
        by_hardware: Add `by_hardware`: the runs of each stage on each hardware.
    """
    content: dict[str, Any] = {
        "directories": [
            {"directory": str(directory), "stages": _stages(_in(report, directory))}
            for directory in report.directories
        ],
        "hardware": {
            id_: record.model_dump(mode="json", exclude_none=True)
            for id_, record in report.descriptions.items()
        },
    }
    if by_hardware:
        content["by_hardware"] = [
            {"hardware": _reference(hardware), "stages": _stages(runs)}
            for hardware, runs in grouped(report.runs, lambda run: run.hardware)
        ]
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


def _in(report: Report, directory: object) -> list[TimedRun]:
    return [run for run in report.runs if run.directory == directory]


def _stages(runs: Iterable[TimedRun]) -> dict[str, Any]:
    return {
        stage: {
            "total_seconds": sum(run.run.seconds for run in measured),
            "runs": [_run(run) for run in measured],
        }
        for stage, measured in grouped(runs, lambda run: run.stage)
    }


def _run(run: TimedRun) -> dict[str, Any]:
    told = run.run.model_dump(
        mode="json", exclude_none=True, exclude={"hardware_id", "system_ram_gb", "gpu_ram_gb"}
    )
    return {**told, "directory": str(run.directory), "hardware": _reference(run.hardware)}


def _reference(hardware: Hardware) -> dict[str, Any]:
    facts = {
        "kind": hardware.kind.value,
        "id": hardware.id,
        "system_ram_gb": hardware.system_ram_gb,
        "gpu_ram_gb": hardware.gpu_ram_gb,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def grouped(
    runs: Iterable[TimedRun], key: Callable[[TimedRun], _Key]
) -> list[tuple[_Key, list[TimedRun]]]:
    """Runs by a key, in the order in which each first appears."""
    found: dict[_Key, list[TimedRun]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return list(found.items())
