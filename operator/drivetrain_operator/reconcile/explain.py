"""The real reasons, in words: why pods do not run, what a failed container said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_api.digest import TERMINATION_LIMIT, Digest, decode
from drivetrain_operator.manifests.names import progress_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivetrain_operator.reconcile.context import Context
    from drivetrain_operator.reconcile.views import ContainerView, PodView, Terminated

_ORDINARY_WAITS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_CREATE_EVENTS: Final = frozenset({"FailedCreate"})


def obstacle(context: Context) -> str:
    """Why the attempt's pods do not run yet; empty where nothing is known to hinder them."""
    return next(_obstacles(context), "")


def _obstacles(context: Context) -> Iterator[str]:
    job = context.job
    pods = context.attempt_pods
    if job is not None and len(pods) < context.spec.topology.nodes:
        events = [
            event
            for event in context.observed.job_events
            if event.job_uid == job.meta.uid and event.reason in _CREATE_EVENTS
        ]
        newest = max(
            events,
            key=lambda e: (e.last_seen.timestamp() if e.last_seen else 0.0, e.message),
            default=None,
        )
        if newest is not None:
            yield f"{newest.reason}: {newest.message}"
    for pod in pods:
        if not pod.scheduled and pod.unscheduled_message:
            yield f"pod {pod.meta.name} is not scheduled: {pod.unscheduled_message}"
        for container in pod.containers:
            if container.waiting is not None and container.waiting.reason not in _ORDINARY_WAITS:
                yield f"pod {pod.meta.name}: {waiting_words(container)}"


def waiting_words(container: ContainerView) -> str:
    """A waiting container's reason and message."""
    if container.waiting is None:
        return ""
    kind = "init container" if container.init else "container"
    words = f"{kind} {container.name}: {container.waiting.reason}"
    return f"{words}: {container.waiting.message}" if container.waiting.message else words


def termination_digest(context: Context, terminated: Terminated | None) -> Digest | None:
    """The validated digest in a termination message, where it is this attempt's."""
    if terminated is None:
        return None
    digest = decode(terminated.message, TERMINATION_LIMIT)
    return digest if digest is not None and digest.attempt == context.status.attempt else None


def attempt_digest(context: Context) -> Digest | None:
    """What the current attempt last said of itself: a report of its end before any other.

    The progress ConfigMap holds more than a termination message can; the message is what
    the kubelet kept where the last patch did not get through.
    """
    name = progress_name(context.run_name)
    found = [
        view.digest
        for view in context.config_maps
        if view.meta.name == name
        and view.digest is not None
        and view.digest.attempt == context.status.attempt
    ]
    first = next((pod.trainer for pod in context.attempt_pods if pod.index == 0), None)
    last = termination_digest(context, first.terminated if first is not None else None)
    if last is not None:
        found.append(last)
    return next((d for d in found if d.exit_code is not None), found[0] if found else None)


def failure_words(context: Context, pod: PodView, container: ContainerView | None) -> str:
    """How a pod failed: its own reason, its container's code, and what that one said."""
    parts = [f"pod {pod.meta.name}"]
    if pod.reason or pod.message:
        parts.append(": ".join(part for part in (pod.reason, pod.message) if part))
    ended = container.terminated if container is not None else None
    if container is not None and ended is not None:
        where = "" if container.trainer else f"container {container.name} "
        parts.append(f"{where}{_ending(ended)}")
        said = _said(context, ended)
        if said:
            parts.append(said)
    return ": ".join(parts)


def _ending(ended: Terminated) -> str:
    words = f"exit code {ended.exit_code}"
    if ended.signal:
        words = f"{words} (signal {ended.signal})"
    ordinary = ("", "Error", "Completed")
    return words if ended.reason in ordinary else f"{ended.reason}, {words}"


def _said(context: Context, ended: Terminated) -> str:
    """The digest's message, or a termination message that is plain text."""
    digest = termination_digest(context, ended)
    if digest is not None:
        return digest.message
    text = ended.message.strip()
    return "" if text.startswith("{") else text
