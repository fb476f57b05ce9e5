"""``drivetrain status``: what the runs of this machine are, and what happened to one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from drivetrain_api.status import ConditionStatus, Phase
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.local.store import LocalStore, as_object
from drivetrain_operator.yaml_core import dump

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from drivetrain_api.trainingrun import TrainingRun

COLUMNS: Final = (
    "NAME",
    "PHASE",
    "ALGO",
    "TASK",
    "RANKS",
    "PROGRESS",
    "STEPS/S",
    "REWARD",
    "RESTARTS",
    "AGE",
)
_RESTING: Final = frozenset({Phase.COMPLETE, Phase.FAILED, Phase.SUSPENDED})
_UNDRIVEN: Final = "* nobody drives it: `drivetrain run` with its manifest goes on"
_EVENTS_SHOWN: Final = 10
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


@dataclass(frozen=True)
class _Row:
    cells: tuple[str, ...]
    undriven: bool


def status(state: Path, name: str | None, *, yaml: bool) -> None:
    """Print every run, or one in full.

    Raises:
        Refusal: there is no such run, or a stored one cannot be read.
    """
    store = LocalStore(state)
    if name is not None and name not in store.names():
        known = ", ".join(store.names()) or "none"
        raise Refusal([f"no run {name!r} under {state}; stored: {known}"])
    runs = [_get(store, found) for found in ([name] if name is not None else store.names())]
    if yaml:
        click.echo("---\n".join(dump(as_object(run)) for run in runs), nl=False)
        return
    _table(store, runs)
    if name is not None:
        _details(store, runs[0])


def _get(store: LocalStore, name: str) -> TrainingRun:
    try:
        run = store.get(name)
    except ValueError as error:
        raise Refusal([str(error)]) from None
    if run is None:
        raise Refusal([f"run {name!r} was removed just now"])
    return run


def _table(store: LocalStore, runs: Sequence[TrainingRun]) -> None:
    if not runs:
        click.echo(f"no runs under {store.root}", err=True)
        return
    now = datetime.now(UTC)
    rows = [_row(store, run, now) for run in runs]
    lines = [COLUMNS, *(row.cells for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("   ".join(padded).rstrip())
    if any(row.undriven for row in rows):
        click.echo(_UNDRIVEN, err=True)


def _row(store: LocalStore, run: TrainingRun, now: datetime) -> _Row:
    found, progress, spec = run.status, run.status.progress, run.spec
    phase = found.phase or Phase.PENDING
    undriven = phase not in _RESTING and store.holder(run.metadata.name) is None
    created = run.metadata.creation_timestamp
    cells = (
        run.metadata.name,
        f"{phase}*" if undriven else str(phase),
        str(spec.algo.name),
        spec.task.name,
        str(spec.topology.world_size),
        _done(run),
        _figure(progress.steps_per_second if progress else None),
        _figure(progress.mean_reward if progress else None),
        str(found.restarts),
        age(int((now - created).total_seconds())) if created is not None else "",
    )
    return _Row(cells, undriven)


def _done(run: TrainingRun) -> str:
    progress = run.status.progress
    if progress is None:
        return ""
    target = progress.target_env_steps
    return str(progress.env_steps) if not target else f"{100 * progress.env_steps // target}%"


def _figure(decimal: str | None) -> str:
    """A decimal of the status at a width for tables."""
    return "" if decimal is None else f"{float(decimal):.5g}"


def age(seconds: int) -> str:
    """A duration as kubectl shows it: its largest unit."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"


def _details(store: LocalStore, run: TrainingRun) -> None:
    name = run.metadata.name
    holder = store.holder(name)
    click.echo(f"\nDriven by: {holder or 'nobody'}")
    if run.status.run_summary is not None and run.status.run_summary.run_directory is not None:
        click.echo(f"Run directory: {run.status.run_summary.run_directory}")
    click.echo(f"Logs: {store.folder(name) / 'logs'}")
    click.echo("Conditions:")
    for condition in run.status.conditions:
        sign = {ConditionStatus.TRUE: "+", ConditionStatus.FALSE: "-"}.get(condition.status, "?")
        click.echo(f"  {sign} {condition.type}: {condition.reason} {condition.message}".rstrip())
    events = store.events(name)[-_EVENTS_SHOWN:]
    click.echo("Events:" if events else "Events: none")
    for event in events:
        click.echo(f"  {event['time']} {event['type']} {event['reason']}: {event['message']}")
