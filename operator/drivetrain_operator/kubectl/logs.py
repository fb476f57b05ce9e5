"""`kubectl drivetrain logs`: the log of the pod that a rank runs in."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import click

from drivetrain_operator.cluster.errors import ApiError, NotFoundError
from drivetrain_operator.cluster.resources import PODS
from drivetrain_operator.kubectl.failure import Failure
from drivetrain_operator.kubectl.runs import Run, get_run, pods_of
from drivetrain_operator.kubectl.sections import rank_range
from drivetrain_operator.manifests.names import TRAINER_CONTAINER

if TYPE_CHECKING:
    from drivetrain_operator.kubectl.session import Session
    from drivetrain_operator.reconcile.views import PodView

POLL_S: Final = 1.0
"""Seconds between two looks for a container that has yet to start."""
_GONE: Final = (
    "an ended attempt's pods are deleted with its Job, and their logs with them; "
    "`kubectl drivetrain describe {name}` has its last words, the cluster's log store the rest"
)


@dataclass(frozen=True)
class LogRequest:
    """Which log, and how much of it."""

    rank: int = 0
    every_pod: bool = False
    attempt: int | None = None
    """None for the current one, which is the only one that has pods."""
    previous: bool = False
    """The attempt before the current one, which has no pods any more."""
    container: str = TRAINER_CONTAINER
    follow: bool = False
    tail: int | None = None
    """Newest lines; None for all."""
    since_s: int | None = None
    """Seconds back; None for all."""
    timestamps: bool = False

    def params(self) -> dict[str, str]:
        """Query of the pod's log subresource."""
        found = {"container": self.container}
        if self.follow:
            found["follow"] = "true"
        if self.tail is not None:
            found["tailLines"] = str(self.tail)
        if self.since_s is not None:
            found["sinceSeconds"] = str(self.since_s)
        if self.timestamps:
            found["timestamps"] = "true"
        return found


async def show_logs(session: Session, name: str, wanted: LogRequest) -> None:
    """Print the log; with `follow` wait for the container to start, and print until it ends.

    Raises:
        Failure: there is no such run, attempt, rank or log.
    """
    run = await get_run(session, name)
    _check(run, wanted)
    indexes = range(run.nodes) if wanted.every_pod else [wanted.rank // run.ranks_per_node]
    if not wanted.every_pod and run.ranks_per_node > 1:
        ranks = rank_range(run, indexes[0])
        click.echo(f"ranks {ranks} share this pod and its log", err=True)
    printed = [
        _print(session, run, index, wanted, _prefix(run, index) if wanted.every_pod else "")
        for index in indexes
    ]
    await asyncio.gather(*printed)
    if wanted.follow:
        await _tell_end(session, name, run.status.attempt)


def _check(run: Run, wanted: LogRequest) -> None:
    """That there may be such a log."""
    current, ranks = run.status.attempt, run.nodes * run.ranks_per_node
    if not wanted.every_pod and wanted.rank >= ranks:
        raise Failure(
            f"{run.name} has no rank {wanted.rank}: its ranks are 0 to {ranks - 1}",
            f"{run.nodes} pods of {run.ranks_per_node} ranks each",
        )
    attempt = current - 1 if wanted.previous else wanted.attempt or current
    if wanted.previous and current <= 1:
        raise Failure(f"{run.name} has no attempt before attempt {current}")
    if attempt > current:
        raise Failure(f"{run.name} has no attempt {attempt} yet: it is at {current}")
    if attempt < current:
        raise Failure(f"the log of attempt {attempt} is gone", _GONE.format(name=run.name))
    if not current:
        words = run.status.message or "its operator has not seen it"
        raise Failure(f"{run.name} has no attempt yet: {words}")


def _prefix(run: Run, index: int) -> str:
    return click.style(f"[{rank_range(run, index)}] ", dim=True)


async def _print(session: Session, run: Run, index: int, wanted: LogRequest, prefix: str) -> None:
    """The log of one pod."""
    pod = await _pod(session, run, index, wait=wanted.follow)
    while True:
        try:
            lines = session.cluster.lines(
                PODS, namespace=run.namespace, name=pod.meta.name, params=wanted.params()
            )
            async with contextlib.aclosing(lines):
                async for line in lines:
                    click.echo(f"{prefix}{line}")
        except NotFoundError:
            raise Failure(f"pod {pod.meta.name} is gone", _GONE.format(name=run.name)) from None
        except ApiError as error:
            if not wanted.follow or error.status != HTTPStatus.BAD_REQUEST or _unknown(error):
                raise _unreadable(run, error) from None
            await asyncio.sleep(POLL_S)
            continue
        return


def _unknown(error: ApiError) -> bool:
    """Whether the container's name is wrong, which no wait cures."""
    return "is not valid for pod" in error.message


def _unreadable(run: Run, error: ApiError) -> Exception:
    """A container that does not run yet is explained by the run; anything else by itself."""
    if error.status != HTTPStatus.BAD_REQUEST:
        return error
    hint = "" if _unknown(error) else f"{run.status.message or ''}\n-f waits for it to start"
    return Failure(error.message, hint.strip())


async def _pod(session: Session, run: Run, index: int, *, wait: bool) -> PodView:
    """The pod of that index in the run's attempt, on its node; waited for where asked.

    The API server answers for a pod without a node as if its log were empty.
    """
    told = ""
    where = f"attempt {run.status.attempt} of {run.name}"
    while True:
        found = [pod for pod in await pods_of(session, run) if pod.index == index]
        if found and found[-1].scheduled:
            return found[-1]
        fresh = await get_run(session, run.name)
        lacks = "has no pod" if not found else "has no scheduled pod"
        if fresh.status.attempt != run.status.attempt or not wait or fresh.phase.terminal:
            raise Failure(
                f"{where} {lacks} for ranks {rank_range(run, index)}: it is {fresh.phase}",
                fresh.status.message or "",
            )
        words = f"{where} {lacks} yet: {fresh.status.message or fresh.phase}"
        if words != told:
            click.echo(words, err=True)
            told = words
        await asyncio.sleep(POLL_S)


async def _tell_end(session: Session, name: str, attempt: int) -> None:
    """Why nothing more comes."""
    run = await get_run(session, name)
    words = f"the log of attempt {attempt} ended; {name} is {run.phase}"
    click.echo(f"{words}: {run.status.message}" if run.status.message else words, err=True)
