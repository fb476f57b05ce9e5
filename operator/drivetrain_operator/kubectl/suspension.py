"""`kubectl drivetrain suspend` and `resume`: a narrow patch, then, if asked, a wait."""

from __future__ import annotations

import asyncio
import getpass
import time
from typing import TYPE_CHECKING, Any, Final

import click

from drivetrain_api import labels
from drivetrain_api.status import Phase
from drivetrain_operator.cli.figures import duration
from drivetrain_operator.cluster.client import ContentType, Method
from drivetrain_operator.cluster.resources import TRAINING_RUNS
from drivetrain_operator.kubectl.failure import Failure
from drivetrain_operator.kubectl.runs import Run, get_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivetrain_operator.kubectl.session import Session

MANAGER: Final = "kubectl-drivetrain"
"""Field manager of what this plugin writes."""
POLL_S: Final = 1.0
"""Seconds between two looks while waiting."""
_WANTED: Final = {
    True: frozenset({Phase.SUSPENDED}),
    False: frozenset({Phase.RUNNING}),
}
_DONE: Final = {True: "suspended", False: "resumed"}


async def set_suspend(
    session: Session, names: Sequence[str], *, suspend: bool, wait_s: float | None
) -> None:
    """Ask for runs to be held, or to go on.

    Args:
        session: The connection.
        names: The runs.
        suspend: What `spec.suspend` becomes.
        wait_s: Seconds to wait until they are; None returns at once.

    Raises:
        Failure: a run is not there, is over, or does not get there in time.
    """
    runs = [await get_run(session, name) for name in names]
    for run in runs:
        if run.phase.terminal:
            verb = "suspend" if suspend else "resume"
            raise Failure(
                f"TrainingRun {run.name} is {run.phase}: there is nothing to {verb}",
                "a finished run stays finished: create another one to train further",
            )
    for run in runs:
        await _patch(session, run, suspend=suspend)
    if wait_s is not None:
        end = time.monotonic() + wait_s
        for run in runs:
            await _wait(session, run.name, suspend=suspend, end=end, wait_s=wait_s)


async def _patch(session: Session, run: Run, *, suspend: bool) -> None:
    if run.suspend is suspend:
        click.echo(f"{run.name}: suspend is {str(suspend).lower()} already")
        return
    body: dict[str, Any] = {
        "metadata": {"annotations": {labels.SUSPENDED_BY: _user() if suspend else None}},
        "spec": {"suspend": suspend},
    }
    await session.cluster.request(
        Method.PATCH,
        TRAINING_RUNS,
        namespace=run.namespace,
        name=run.name,
        params={"fieldManager": MANAGER, "fieldValidation": "Strict"},
        body=body,
        content_type=ContentType.MERGE_PATCH,
    )
    click.echo(f"{run.name}: {_DONE[suspend]} as asked")


def _user() -> str:
    """Who asks, for whoever wonders later."""
    try:
        return f"{getpass.getuser()} by kubectl drivetrain"
    except (OSError, KeyError, ImportError):
        return "kubectl drivetrain"


async def _wait(session: Session, name: str, *, suspend: bool, end: float, wait_s: float) -> None:
    """Tell what the run says of itself until it is there."""
    told = ""
    while True:
        run = await get_run(session, name)
        words = f"{name}: {run.phase}" + (f": {run.status.message}" if run.status.message else "")
        if words != told:
            click.echo(words, err=True)
            told = words
        if run.phase in _WANTED[suspend]:
            return
        if run.phase.terminal:
            if run.phase is Phase.COMPLETE:
                return
            raise Failure(f"{name} failed meanwhile: {run.status.message or ''}".rstrip(": "))
        if run.suspend is not suspend:
            raise Failure(f"{name}: somebody set suspend back meanwhile")
        if time.monotonic() >= end:
            raise Failure(
                f"{name} is {run.phase} after {duration(wait_s)}",
                f"kubectl drivetrain describe {name} tells why; --timeout waits longer",
            )
        await asyncio.sleep(POLL_S)
