"""`kubectl drivetrain list`: runs in a table, the ones that need a look explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from drivetrain_api.status import Phase, done_of
from drivetrain_operator.cli.figures import NOTHING, duration, figure
from drivetrain_operator.cli.report import eta
from drivetrain_operator.cli.table import table
from drivetrain_operator.kubectl.output import Format, listing, rendered
from drivetrain_operator.kubectl.runs import Run, all_runs, now
from drivetrain_operator.reconcile.fields import mapping, text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from drivetrain_operator.kubectl.session import Session

_HEADER: Final = (
    "NAME",
    "PHASE",
    "ALGO",
    "TASK",
    "RANKS",
    "PROGRESS",
    "ETA",
    "STEPS/S",
    "REWARD",
    "ATTEMPT",
    "RESTARTS",
    "AGE",
)
_RIGHT: Final = ("RANKS", "PROGRESS", "ETA", "STEPS/S", "REWARD", "ATTEMPT", "RESTARTS", "AGE")
COLORS: Final = {
    Phase.PENDING: "yellow",
    Phase.RUNNING: "green",
    Phase.RESTARTING: "yellow",
    Phase.SUSPENDING: "cyan",
    Phase.SUSPENDED: "cyan",
    Phase.COMPLETE: "blue",
    Phase.FAILED: "red",
}
"""Of a phase, on a terminal that has colours."""
_EXPLAINED: Final = frozenset({Phase.PENDING, Phase.RESTARTING, Phase.FAILED})


async def show_list(
    session: Session, *, every_namespace: bool, selector: str, form: Format | None
) -> None:
    """Print every run of a namespace, or of all.

    Raises:
        Failure: the API server serves no TrainingRuns.
    """
    raws = await all_runs(session, every_namespace=every_namespace, label_selector=selector)
    if form is not None:
        click.echo(rendered(listing(raws), form), nl=False)
        return
    if not raws:
        place = "any namespace" if every_namespace else f"namespace {session.namespace}"
        click.echo(f"no TrainingRuns in {place}", err=True)
        return
    for line in list_lines(raws, now(), with_namespace=every_namespace):
        click.echo(line)


def list_lines(
    raws: Sequence[dict[str, Any]], at: datetime, *, with_namespace: bool = False
) -> list[str]:
    """The table, then a line for each run that waits, restarts or has failed."""
    runs = sorted(map(Run.readable, raws), key=lambda run: (run.namespace, run.name))
    header = ("NAMESPACE", *_HEADER) if with_namespace else _HEADER
    rows = [
        ((run.namespace, *_cells(run, at)) if with_namespace else _cells(run, at)) for run in runs
    ]
    lines = table(header, rows, right=_RIGHT)
    shown = [lines[0], *(_colored(line, run) for line, run in zip(lines[1:], runs, strict=True))]
    told = [
        f"{run.name}: {run.status.message}"
        for run in runs
        if run.phase in _EXPLAINED and run.status.message
    ]
    return [*shown, "", *told] if told else shown


def _colored(line: str, run: Run) -> str:
    phase = str(run.phase)
    return line.replace(phase, click.style(phase, fg=COLORS[run.phase]), 1)


def _cells(run: Run, at: datetime) -> tuple[str, ...]:
    status, progress = run.status, run.status.progress
    return (
        run.name,
        str(run.phase),
        text(mapping(run.spec, "algo"), "name"),
        text(mapping(run.spec, "task"), "name"),
        str(status.ranks or run.nodes * run.ranks_per_node),
        status.done or done_of(progress) or NOTHING,
        eta(progress, live=run.phase is Phase.RUNNING),
        figure(progress.steps_per_second if progress is not None else None),
        figure(progress.mean_reward if progress is not None else None),
        str(status.attempt),
        str(status.restarts),
        NOTHING if run.created_at is None else duration((at - run.created_at).total_seconds()),
    )
