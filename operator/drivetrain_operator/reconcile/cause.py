"""Why the current attempt is over, read from its Job and pods; None while it is not.

The Job's verdict comes first in time (`FailureTarget` a second or two after the exit), the
pods' words come first in weight: a pod that its Job stopped is gone within a second, so
the Job's message stands in where the pod is not seen any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from drivetrain_api.exit_codes import ExitCode, from_status
from drivetrain_api.status import Reason
from drivetrain_operator.manifests.job import FailureRule
from drivetrain_operator.reconcile.explain import (
    attempt_digest,
    failure_words,
    termination_digest,
    waiting_words,
)
from drivetrain_operator.reconcile.views import JobConditionType, PodPhase

if TYPE_CHECKING:
    from drivetrain_operator.reconcile.context import Context
    from drivetrain_operator.reconcile.views import ContainerView, JobCondition, JobView, PodView

_POLICY: Final = "PodFailurePolicy"
_RULE: Final = re.compile(r"rule at index ([0-9]{1,3})")
_CODE: Final = re.compile(r"exit code ([0-9]{1,3})")
_START_ERRORS: Final = frozenset({"StartError", "ContainerCannotRun"})
_HOPELESS_WAITS: Final = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_LATE: Final = datetime.max.replace(tzinfo=UTC)


class Effect(Enum):
    """What an ending means for the run."""

    FINAL = auto()
    """The run fails: another attempt would end alike."""
    DISRUPTION = auto()
    """Another attempt, not counted against maxRestarts."""
    COUNTED = auto()
    """Another attempt, while maxRestarts allows."""


@dataclass(frozen=True)
class Cause:
    """Why an attempt is over."""

    effect: Effect
    reason: Reason
    message: str
    exit_code: int | None = None


@dataclass(frozen=True)
class _Failure:
    """A container that failed, in its pod."""

    pod: PodView
    container: ContainerView
    code: int
    reason: str
    finished_at: datetime


def cause_of(context: Context) -> Cause | None:
    """Why the wanted attempt is over, or None."""
    if context.wanted is None or context.status.job_uid is None or context.succeeding:
        return None
    job = context.job
    if job is None or job.meta.deletion_at is not None:
        return _final(context, None) or _disruption(context, None) or _deleted(context)
    verdict = job.condition(JobConditionType.FAILURE_TARGET, JobConditionType.FAILED)
    if verdict is not None:
        return (
            _final(context, verdict)
            or _disruption(context, verdict)
            or _out_of_memory(context)
            or _suspended(job, verdict)
            or _counted(context, verdict)
        )
    if job.held:
        return None
    return _hopeless(context) or _disruption(context, None) or _lost(context)


def _failures(context: Context) -> list[_Failure]:
    """Failed containers of the attempt, the likeliest culprit first.

    What the Job stopped after the first failure left with 75; it comes last. So does a pod
    that the kubelet evicted for its own limits, but that one says so itself. A pod that says
    that it lost a rank of another one comes after that one, however fast it was.
    """
    found = [
        _Failure(
            pod,
            container,
            container.terminated.exit_code,
            container.terminated.reason,
            container.terminated.finished_at or _LATE,
        )
        for pod in context.attempt_pods
        for container in pod.containers
        if container.terminated is not None and container.terminated.exit_code != 0
    ]
    return sorted(
        found,
        key=lambda f: (
            f.code == ExitCode.CHECKPOINTED and not f.pod.reason,
            _lost_a_rank(context, f.container),
            f.finished_at,
        ),
    )


def _lost_a_rank(context: Context, container: ContainerView) -> bool:
    digest = termination_digest(context, container.terminated) if container.trainer else None
    return digest is not None and bool(digest.rank_lost)


def _rule(verdict: JobCondition | None) -> int | None:
    """Index of the podFailurePolicy rule that a Job's condition names."""
    if verdict is None or verdict.reason != _POLICY:
        return None
    match = _RULE.search(verdict.message)
    return int(match[1]) if match else None


def _code(verdict: JobCondition) -> int | None:
    match = _CODE.search(verdict.message)
    return int(match[1]) if match else None


def _final(context: Context, verdict: JobCondition | None) -> Cause | None:
    for failure in _failures(context):
        words = failure_words(context, failure.pod, failure.container)
        if failure.reason in _START_ERRORS:
            return Cause(Effect.FINAL, Reason.CANNOT_START, words, failure.code)
        meant = from_status(failure.code)
        if failure.container.trainer and not meant.retryable and failure.pod.disruption is None:
            return Cause(Effect.FINAL, Reason.NON_RETRYABLE_EXIT, words, failure.code)
    if verdict is not None and _rule(verdict) == FailureRule.FOR_GOOD:
        words = _reported(context) or verdict.message
        return Cause(Effect.FINAL, Reason.NON_RETRYABLE_EXIT, words, _code(verdict))
    return None


def _reported(context: Context) -> str:
    """What the attempt's last digest said of its end, where no pod is left to ask."""
    digest = attempt_digest(context)
    return digest.message if digest is not None and digest.exit_code is not None else ""


def _hopeless(context: Context) -> Cause | None:
    for pod in context.attempt_pods:
        for container in pod.containers:
            if container.waiting is not None and container.waiting.reason in _HOPELESS_WAITS:
                words = f"pod {pod.meta.name}: {waiting_words(container)}"
                return Cause(Effect.FINAL, Reason.CANNOT_START, words)
    return None


def _disruption(context: Context, verdict: JobCondition | None) -> Cause | None:
    pod = next((p for p in context.attempt_pods if disrupted(p)), None)
    if pod is not None:
        words = f"pod {pod.meta.name}: {pod.disruption}"
    elif verdict is not None and _rule(verdict) == FailureRule.DISRUPTED:
        words = verdict.message
    elif context.status.disruption_seen:
        words = "a pod was disrupted"
    else:
        return None
    return Cause(Effect.DISRUPTION, Reason.DISRUPTED, words)


def _suspended(job: JobView, verdict: JobCondition) -> Cause | None:
    """Who suspends a Job stops its pods; the Job may take their leave for a failure."""
    if not job.suspended or _rule(verdict) != FailureRule.STOPPED:
        return None
    words = f"the Job was suspended: {verdict.message}"
    return Cause(Effect.DISRUPTION, Reason.DISRUPTED, words, _code(verdict))


def disrupted(pod: PodView) -> bool:
    """Whether a pod is ended by the cluster; one that is done already is not harmed by it."""
    return pod.disruption is not None and pod.phase is not PodPhase.SUCCEEDED


def _lost(context: Context) -> Cause | None:
    pod = next((p for p in context.attempt_pods if p.live and context.overdue(p)), None)
    if pod is None:
        return None
    words = f"pod {pod.meta.name} on node {pod.node or '?'} does not end after its grace period"
    return Cause(Effect.DISRUPTION, Reason.NODE_LOST, words)


def _out_of_memory(context: Context) -> Cause | None:
    """Memory is the reason even where only a child was killed and the code is 1 or 75."""
    for failure in _failures(context):
        if failure.reason == "OOMKilled":
            words = failure_words(context, failure.pod, failure.container)
            return Cause(Effect.COUNTED, Reason.OOM_KILLED, words, failure.code)
    return None


def _counted(context: Context, verdict: JobCondition) -> Cause:
    failures = _failures(context)
    if failures:
        first = failures[0]
        words = failure_words(context, first.pod, first.container)
        return Cause(Effect.COUNTED, Reason.ATTEMPT_FAILED, words, first.code)
    pod = next((p for p in context.attempt_pods if p.phase is PodPhase.FAILED), None)
    words = failure_words(context, pod, None) if pod is not None else _reported(context)
    words = words or f"{verdict.reason}: {verdict.message}"
    return Cause(Effect.COUNTED, Reason.ATTEMPT_FAILED, words, _code(verdict))


def _deleted(context: Context) -> Cause:
    words = f"the Job of attempt {context.status.attempt} was deleted"
    return Cause(Effect.COUNTED, Reason.JOB_DELETED, words)
