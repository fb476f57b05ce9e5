"""`kubectl drivetrain describe`: one run in full, the way a person asks about it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from drivetrain_operator.cluster.errors import ForbiddenError
from drivetrain_operator.cluster.resources import EVENTS
from drivetrain_operator.kubectl import sections
from drivetrain_operator.kubectl.events import in_order
from drivetrain_operator.kubectl.output import Format, rendered, without_managers
from drivetrain_operator.kubectl.runs import Run, get_raw, listed, now, pods_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from drivetrain_operator.kubectl.session import Session
    from drivetrain_operator.reconcile.fields import Object
    from drivetrain_operator.reconcile.views import PodView

EVENTS_SHOWN: Final = 12
"""Newest Events that are shown."""
_WAITING_PODS: Final = 4
"""Pods that do not run yet whose own Events are looked at."""


@dataclass(frozen=True)
class Description:
    """A run and what is around it; None where the user may not see it."""

    run: Run
    pods: tuple[PodView, ...] | None
    events: tuple[Object, ...] | None
    at: datetime


async def show_description(session: Session, name: str, form: Format | None) -> None:
    """Print one run in full.

    Raises:
        Failure: there is no such run.
    """
    raw = await get_raw(session, name)
    if form is not None:
        click.echo(rendered(without_managers(raw), form), nl=False)
        return
    found = await _described(session, Run.from_object(raw))
    for line in description_lines(found, shutil.get_terminal_size((120, 0)).columns):
        click.echo(line)


async def _described(session: Session, run: Run) -> Description:
    pods: tuple[PodView, ...] | None
    events: tuple[Object, ...] | None
    try:
        pods = await pods_of(session, run)
    except ForbiddenError:
        pods = None
    try:
        events = await _events(session, run, pods or ())
    except ForbiddenError:
        events = None
    return Description(run, pods, events, now())


async def _events(session: Session, run: Run, pods: Sequence[PodView]) -> tuple[Object, ...]:
    """Events of the run, and of its pods that do not run.

    A volume that cannot be mounted, for one, shows nowhere else.
    """
    waiting = [pod for pod in pods if pod.live and not pod.ready][:_WAITING_PODS]
    found: list[Object] = []
    for uid in (run.uid, *(pod.meta.uid for pod in waiting)):
        found += await listed(
            session,
            EVENTS,
            namespace=run.namespace,
            field_selector=f"involvedObject.uid={uid}",
        )
    return in_order(found)


def description_lines(found: Description, width: int) -> list[str]:
    """Every section that has something to say."""
    run, at = found.run, found.at
    made = [
        sections.overview(run, at),
        sections.progress(run, at),
        sections.summary(run),
        sections.soak(run),
        sections.attempts(run, at, width),
        sections.conditions(run, at, width),
        sections.pods(run, found.pods, at),
        sections.artifacts(run),
        sections.events(found.events, at, width, EVENTS_SHOWN),
    ]
    lines: list[str] = []
    for section in filter(None, made):
        lines += [*([""] if lines else []), *section]
    return lines
