"""``drivetrain status``: what the runs of this machine are, and what happened to one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from drivetrain_api.status import ConditionStatus, Phase, done_of
from drivetrain_operator.cli.figures import NOTHING, duration, figure
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.cli.report import eta, progress_lines, soak_lines, summary_lines
from drivetrain_operator.cli.table import table
from drivetrain_operator.local.store import LocalStore, as_object
from drivetrain_operator.yaml_core import dump

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from drivetrain_api.status import TrainingRunStatus
    from drivetrain_api.trainingrun import TrainingRun

COLUMNS: Final = (
    "NAME",
    "PHASE",
    "ALGO",
    "TASK",
    "RANKS",
    "PROGRESS",
    "ETA",
    "STEPS/S",
    "REWARD",
    "RESTARTS",
    "AGE",
)
_RIGHT: Final = ("RANKS", "PROGRESS", "ETA", "STEPS/S", "REWARD", "RESTARTS", "AGE")
_RESTING: Final = frozenset({Phase.COMPLETE, Phase.FAILED, Phase.SUSPENDED})
_UNDRIVEN: Final = "* nobody drives it: `drivetrain run` with its manifest goes on"
_EVENTS_SHOWN: Final = 10


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
    for line in table(COLUMNS, [row.cells for row in rows], right=_RIGHT):
        click.echo(line)
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
        found.done or done_of(progress) or NOTHING,
        eta(progress, live=phase is Phase.RUNNING and not undriven),
        figure(progress.steps_per_second if progress else None),
        figure(progress.mean_reward if progress else None),
        str(found.restarts),
        duration((now - created).total_seconds()) if created is not None else NOTHING,
    )
    return _Row(cells, undriven)


def _details(store: LocalStore, run: TrainingRun) -> None:
    name = run.metadata.name
    holder = store.holder(name)
    click.echo(f"\nDriven by: {holder or 'nobody'}")
    click.echo(f"Logs: {store.folder(name) / 'logs'}")
    for title, lines in _training(run.status, driven=holder is not None):
        click.echo(f"{title}:")
        for line in lines:
            click.echo(f"  {line}")
    click.echo("Conditions:")
    for condition in run.status.conditions:
        sign = {ConditionStatus.TRUE: "+", ConditionStatus.FALSE: "-"}.get(condition.status, "?")
        click.echo(f"  {sign} {condition.type}: {condition.reason} {condition.message}".rstrip())
    events = store.events(name)[-_EVENTS_SHOWN:]
    click.echo("Events:" if events else "Events: none")
    for event in events:
        click.echo(f"  {event['time']} {event['type']} {event['reason']}: {event['message']}")


def _training(found: TrainingRunStatus, *, driven: bool) -> Iterator[tuple[str, list[str]]]:
    """What the trainer's logger reported: figures so far, and what it wrote at its end."""
    if found.progress is not None:
        live = driven and found.phase is Phase.RUNNING
        yield "Progress", progress_lines(found.progress, datetime.now(UTC), live=live)
    if found.run_summary is not None:
        yield "Result", summary_lines(found.run_summary)
    if found.soak is not None:
        yield "Soak", soak_lines(found.soak)
