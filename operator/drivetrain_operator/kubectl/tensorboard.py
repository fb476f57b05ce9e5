"""`kubectl drivetrain tensorboard`: a pod on the run's storage, for as long as the command runs."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import webbrowser
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from drivetrain_operator.cli.figures import duration
from drivetrain_operator.cluster.client import Method
from drivetrain_operator.cluster.errors import ApiError, ForbiddenError, NotFoundError
from drivetrain_operator.cluster.resources import CLAIMS, JOBS, PODS
from drivetrain_operator.kubectl.failure import Failure
from drivetrain_operator.kubectl.port_forward import find_kubectl, forwarded
from drivetrain_operator.kubectl.runs import Run, get_run, pods_of
from drivetrain_operator.kubectl.sections import pod_state
from drivetrain_operator.kubectl.suspension import MANAGER
from drivetrain_operator.kubectl.tensorboard_pod import Placement, tensorboard_pod, trainer_of
from drivetrain_operator.manifests.names import attempt_name
from drivetrain_operator.reconcile.fields import mapping, text
from drivetrain_operator.reconcile.views import PodPhase, PodView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivetrain_operator.kubectl.session import Session
    from drivetrain_operator.reconcile.fields import Object

POLL_S: Final = 1.0
"""Seconds between two looks at a pod that has yet to be ready."""
_ONE_NODE: Final = frozenset({"ReadWriteOnce"})
_ONE_POD: Final = "ReadWriteOncePod"


@dataclass(frozen=True)
class BoardRequest:
    """How TensorBoard is wanted."""

    port: int = 6006
    """Port on this machine; 0 for any that is free."""
    image: str | None = None
    """None for the run's own."""
    browser: bool = False
    """Open a browser."""
    lifetime_s: int = 8 * 3600
    """Seconds after which the pod ends, should this command not delete it."""
    timeout_s: int = 300
    """Seconds to wait until TensorBoard answers."""


async def show_board(session: Session, name: str, wanted: BoardRequest) -> None:
    """Serve TensorBoard on this machine until a signal comes.

    Raises:
        Failure: the run has no storage to read, or the pod does not get ready.
    """
    kubectl = find_kubectl()
    run = await get_run(session, name)
    placement = await _placement(session, run, wanted)
    pod_name = f"{run.name}-tensorboard-{secrets.token_hex(3)}"
    manifest = tensorboard_pod(run, pod_name, placement, wanted.lifetime_s)
    try:
        await session.cluster.request(
            Method.POST,
            PODS,
            namespace=run.namespace,
            params={"fieldManager": MANAGER},
            body=manifest,
        )
        click.echo(f"pod {pod_name} reads claim {placement.claim}", err=True)
        await _ready(session, run.namespace, pod_name, wanted.timeout_s)
        arguments = session.connection.arguments(run.namespace)
        async with forwarded(kubectl, pod_name, wanted.port, arguments) as forward:
            click.echo(f"TensorBoard of {name}: {forward.url} (Ctrl-C ends it)")
            if wanted.browser:
                webbrowser.open(forward.url)
            raise Failure(await forward.broken())
    finally:
        await _delete(session, run.namespace, pod_name, wanted.lifetime_s)


async def _placement(session: Session, run: Run, wanted: BoardRequest) -> Placement:
    claim = _claim(run)
    like = await _pod_spec(session, run)
    image = wanted.image or text(trainer_of(like), "image") or text(run.spec, "image")
    if not image:
        raise Failure(
            f"{run.name} names no image, and no Job of it is left to take it from",
            "name one that has TensorBoard, such as the operator's trainer image, by --image",
        )
    return Placement(image, claim, await _node(session, run, claim), like)


def _claim(run: Run) -> str:
    """The claim to read."""
    asked = mapping(run.spec, "storage")
    claim = run.status.storage or text(asked, "claimName")
    if claim:
        return claim
    if text(asked, "size"):
        words = run.status.message or "its first attempt has not begun"
        raise Failure(f"{run.name} has no storage yet: {words}")
    raise Failure(
        f"{run.name} keeps its files in an emptyDir, which only its own pods can read",
        "set spec.storage.size or spec.storage.claimName; or watch training live: "
        f"kubectl drivetrain logs {run.name} -f",
    )


async def _pod_spec(session: Session, run: Run) -> Object:
    """The pod spec of the run's last Job; empty where it is gone, or hidden."""
    try:
        job = await session.cluster.request(
            Method.GET,
            JOBS,
            namespace=run.namespace,
            name=attempt_name(run.name, max(run.status.attempt, 1)),
        )
    except (NotFoundError, ForbiddenError):
        return {}
    return mapping(mapping(mapping(job, "spec"), "template"), "spec")


async def _node(session: Session, run: Run, claim: str) -> str | None:
    """Where the volume is attached, if it can be on one node only."""
    live = next((pod for pod in await pods_of(session, run) if pod.live and pod.node), None)
    modes = await _modes(session, run.namespace, claim)
    if live is None:
        return None
    if _ONE_POD in modes:
        raise Failure(
            f"claim {claim} is {_ONE_POD}, and pod {live.meta.name} holds it",
            f"suspend the run first: kubectl drivetrain suspend {run.name} --wait",
        )
    return live.node if set(modes) <= _ONE_NODE else None


async def _modes(session: Session, namespace: str, claim: str) -> Sequence[str]:
    """Access modes of the claim; none where the user may not see it."""
    try:
        found = await session.cluster.request(Method.GET, CLAIMS, namespace=namespace, name=claim)
    except ForbiddenError:
        return ()
    except NotFoundError:
        raise Failure(f"PersistentVolumeClaim {claim} is gone, and the files with it") from None
    modes = mapping(found, "spec").get("accessModes")
    return [str(mode) for mode in modes] if isinstance(modes, list) else []


async def _ready(session: Session, namespace: str, name: str, timeout_s: int) -> None:
    """Wait until TensorBoard answers in its pod, telling what it waits for."""
    end, told = time.monotonic() + timeout_s, ""
    while True:
        raw = await session.cluster.request(Method.GET, PODS, namespace=namespace, name=name)
        pod = PodView.from_object(raw)
        if pod.ready:
            return
        words = _hindrance(pod)
        if words != told:
            click.echo(f"waiting: {words}", err=True)
            told = words
        if not pod.live:
            raise Failure(f"TensorBoard ended: {words}", await _tail(session, namespace, name))
        if time.monotonic() >= end:
            raise Failure(f"pod {name} is not ready after {duration(timeout_s)}: {words}")
        await asyncio.sleep(POLL_S)


def _hindrance(pod: PodView) -> str:
    if pod.unscheduled_message:
        return pod.unscheduled_message
    waits = next((c.waiting for c in pod.containers if c.waiting and c.waiting.message), None)
    if waits is not None:
        return f"{waits.reason}: {waits.message}"
    return "TensorBoard starts" if pod.phase is PodPhase.RUNNING else pod_state(pod)


async def _tail(session: Session, namespace: str, name: str) -> str:
    """The end of the pod's log; a module that is not there says so here."""
    found: list[str] = []
    with contextlib.suppress(ApiError):
        lines = session.cluster.lines(
            PODS, namespace=namespace, name=name, params={"tailLines": "5"}
        )
        async with contextlib.aclosing(lines):
            found = [line async for line in lines]
    return "\n".join(found)


async def _delete(session: Session, namespace: str, name: str, lifetime_s: int) -> None:
    try:
        await session.cluster.request(
            Method.DELETE,
            PODS,
            namespace=namespace,
            name=name,
            body={"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 1},
        )
    except NotFoundError:
        return
    except ApiError as error:
        click.echo(f"pod {name} could not be deleted: {error}", err=True)
        click.echo(
            f"kubectl delete pod {name} --namespace {namespace}; it ends by itself "
            f"{duration(lifetime_s)} after its start",
            err=True,
        )
    else:
        click.echo(f"pod {name} deleted", err=True)
