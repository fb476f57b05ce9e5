"""Follow the current attempt's Job and pods: seen, scheduled, running, queued, disrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.status import ConditionType, Reason
from drivetrain_operator.reconcile.attempts import stopped
from drivetrain_operator.reconcile.cause import disrupted
from drivetrain_operator.reconcile.conditions import condition, normal, warning
from drivetrain_operator.reconcile.context import Transition
from drivetrain_operator.reconcile.explain import Obstacle, obstacle
from drivetrain_operator.reconcile.views import PodPhase

if TYPE_CHECKING:
    from drivetrain_operator.reconcile.context import Context
    from drivetrain_operator.reconcile.views import PodView


def adopt(context: Context) -> Transition | None:
    """Go on with a newer attempt than the status knows: the status was lost, not the Job."""
    newest = max(context.jobs, key=lambda job: job.meta.attempt or 0, default=None)
    if newest is None or (newest.meta.attempt or 0) <= context.status.attempt:
        return None
    begun = newest.meta.created_at or context.now
    return Transition(
        context.with_status(
            attempt=newest.meta.attempt,
            attempt_started_at=begun,
            started_at=context.status.started_at or begun,
            attempt_running_at=None,
            job_uid=newest.meta.uid,
            disruption_seen=None,
        ).status
    )


def see_job(context: Context) -> Transition | None:
    """Latch the UID of the attempt's Job: from now on its absence means that it was deleted."""
    if context.job is None:
        return None
    return Transition(context.with_status(job_uid=context.job.meta.uid).status)


def see_disruption(context: Context) -> Transition | None:
    """Latch a disruption: its pod is gone in the next instant."""
    if context.wanted is None or (context.job is not None and context.job.held):
        return None
    if not any(disrupted(pod) for pod in context.attempt_pods):
        return None
    return Transition(context.with_status(disruption_seen=True).status)


def see_queue(context: Context) -> Transition | None:
    """A suspended Job waits in a queue; what ran before was a segment of the same attempt."""
    if context.wanted is None or context.job is None or not context.job.held:
        return None
    queue = context.spec.queue_name
    words = f"waits in LocalQueue {queue}" if queue else "the Job is suspended"
    held = stopped(context, Reason.QUEUED, words).with_status(disruption_seen=None)
    held = condition(held, ConditionType.SCHEDULED, Reason.QUEUED, words, holds=False)
    return Transition(held.status)


def see_pods(context: Context) -> Transition | None:
    """Scheduled, then Running, once all pods of the attempt are; until then the reason.

    A segment that runs is looked at again only where somebody took its condition away.
    """
    job = context.job
    if context.wanted is None or job is None or job.held:
        return None
    known = context.status.attempt_running_at is not None
    if known and context.status.is_true(ConditionType.RUNNING):
        return None
    pods = [pod for pod in context.attempt_pods if pod.meta.deletion_at is None]
    wanted = context.spec.topology.nodes
    placed = sum(pod.scheduled for pod in pods)
    started = sum(_started(pod) for pod in pods)
    if started >= wanted:
        return _running(context, wanted)
    if known:
        return None
    if placed < wanted:
        return _waiting(context, ConditionType.SCHEDULED, f"{placed} of {wanted} pods scheduled")
    ready = _scheduled(context, wanted)
    return _waiting(ready, ConditionType.RUNNING, f"{started} of {wanted} pods running")


def _waiting(context: Context, type_: ConditionType, count: str) -> Transition:
    """That condition is False for what hinders the pods, or for what the count says.

    The first sight of an obstacle is worth an Event: nobody looks at a run that waits.
    """
    why = obstacle(context) or Obstacle(Reason.WAITING_FOR_PODS, count)
    old = context.status.condition(type_)
    held = condition(context, type_, why.reason, why.message, holds=False)
    told = why.reason is Reason.WAITING_FOR_PODS or (old is not None and old.reason == why.reason)
    return Transition(held.status, None if told else warning(why.reason, why.message))


def _started(pod: PodView) -> bool:
    return pod.phase in (PodPhase.RUNNING, PodPhase.SUCCEEDED)


def _scheduled(context: Context, nodes: int) -> Context:
    words = f"{nodes} of {nodes} pods scheduled"
    return condition(context, ConditionType.SCHEDULED, Reason.PODS_SCHEDULED, words, holds=True)


def _running(context: Context, nodes: int) -> Transition:
    words = f"attempt {context.status.attempt}: {nodes} of {nodes} pods running"
    since = context.status.attempt_running_at or context.now
    running = _scheduled(context.with_status(attempt_running_at=since), nodes)
    running = condition(running, ConditionType.RUNNING, Reason.PODS_RUNNING, words, holds=True)
    return Transition(running.status, normal(Reason.PODS_RUNNING, words))
