"""The real reasons, in words: why pods do not run, what a failed container said."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_api.digest import TERMINATION_LIMIT, Digest, decode
from drivetrain_api.status import Reason
from drivetrain_operator.manifests.names import progress_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivetrain_operator.reconcile.context import Context
    from drivetrain_operator.reconcile.views import ContainerView, PodView, Terminated

_ORDINARY_WAITS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_PULLS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_BACKED_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*"(: ErrImagePull)?(: )?')
"""What the kubelet puts before the error of the last pull while it waits for the next one."""
_CREATE_EVENTS: Final = frozenset({"FailedCreate"})
_REFUSALS: Final = (
    ("exceeded quota", Reason.QUOTA_EXCEEDED),
    ("violates PodSecurity", Reason.POD_SECURITY),
)
"""Words of the API server where it refuses an object, and what they mean."""


@dataclass(frozen=True)
class Obstacle:
    """Why the attempt's pods do not run."""

    reason: Reason
    message: str


def obstacle(context: Context) -> Obstacle | None:
    """Why the attempt's pods do not run yet; None where nothing is known to hinder them."""
    return next(_obstacles(context), None)


def _obstacles(context: Context) -> Iterator[Obstacle]:
    unmade = uncreated(context)
    if unmade is not None:
        yield unmade
    refused = _refused(context)
    if refused is not None:
        yield refused
    for pod in context.attempt_pods:
        if not pod.scheduled and pod.unscheduled_message:
            yield _unscheduled(context, pod)
        for container in pod.containers:
            if container.waiting is not None and container.waiting.reason not in _ORDINARY_WAITS:
                words = f"pod {pod.meta.name}: {waiting_words(container)}"
                yield Obstacle(_waiting_reason(container.waiting.reason), words)


def uncreated(context: Context) -> Obstacle | None:
    """What the API server has against a child without which there is no Job."""
    refused = context.observed.refused
    if refused is None or not context.awaits_job:
        return None
    words = f"{refused.kind} {refused.name} cannot be created: {refused.message}"
    return Obstacle(_refusal_reason(refused.message, Reason.CREATION_REFUSED), words)


def _refusal_reason(message: str, otherwise: Reason) -> Reason:
    return next((reason for words, reason in _REFUSALS if words in message), otherwise)


def _refused(context: Context) -> Obstacle | None:
    """What the API server answered the Job: a pod that was never created shows nowhere else."""
    job = context.job
    if job is None or len(context.attempt_pods) >= context.spec.topology.nodes:
        return None
    newest = max(
        (
            event
            for event in context.observed.job_events
            if event.job_uid == job.meta.uid and event.reason in _CREATE_EVENTS
        ),
        key=lambda e: (e.last_seen.timestamp() if e.last_seen else 0.0, e.message),
        default=None,
    )
    if newest is None:
        return None
    reason = _refusal_reason(newest.message, Reason.POD_REFUSED)
    return Obstacle(reason, f"{newest.reason}: {newest.message}")


def _unscheduled(context: Context, pod: PodView) -> Obstacle:
    """The scheduler's words; about a claim, they leave out which one."""
    words = pod.unscheduled_message
    if "persistentvolumeclaim" not in words.lower():
        return Obstacle(Reason.UNSCHEDULABLE, f"pod {pod.meta.name} is not scheduled: {words}")
    claim = f" (claim {context.status.storage})" if context.status.storage else ""
    return Obstacle(
        Reason.VOLUME_PENDING, f"pod {pod.meta.name} waits for its volume{claim}: {words}"
    )


def _waiting_reason(reason: str) -> Reason:
    if reason in _PULLS:
        return Reason.IMAGE_PULL
    return Reason.CRASH_LOOP if reason == "CrashLoopBackOff" else Reason.CONTAINER_WAITING


def waiting_words(container: ContainerView) -> str:
    """A waiting container's reason and message.

    A failed pull and the wait for the next one are told alike: they alternate for ever,
    and each change would be another write.
    """
    if container.waiting is None:
        return ""
    reason, message = container.waiting.reason, container.waiting.message
    if reason in ("ErrImagePull", "ImagePullBackOff"):
        reason, message = "ImagePullBackOff", _BACKED_OFF.sub("", message) or message
    kind = "init container" if container.init else "container"
    words = f"{kind} {container.name}: {reason}"
    return f"{words}: {message}" if message else words


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
