"""Teardown: whatever the status does not want any more goes, in every state of the run.

It follows from the status alone, so that a deletion that failed is asked for again by
whoever looks next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.manifests.names import account_name, attempt_name, progress_name
from drivetrain_operator.reconcile.context import overdue_at
from drivetrain_operator.reconcile.decision import (
    DeleteChild,
    DeleteJob,
    DeletePod,
    StripFinalizers,
)
from drivetrain_operator.reconcile.ttl import expired

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from drivetrain_operator.reconcile.context import Context
    from drivetrain_operator.reconcile.decision import Action
    from drivetrain_operator.reconcile.views import ConfigMapView, JobView

_COLLECTOR_FINALIZERS: Final = frozenset({"foregroundDeletion", "orphan"})
"""Set by the API server itself during a deletion."""


def removals(context: Context) -> tuple[Action, ...]:
    """Jobs first, then what is left of their pods, then what an attempt had beside them."""
    return (
        *_jobs(context),
        *_pods(context),
        *_attempt_children(context),
        *_run_children(context),
        *_finalizers(context),
    )


def _jobs(context: Context) -> Iterator[Action]:
    for job in context.jobs:
        if job.meta.deletion_at is None and not _kept(context, job):
            yield DeleteJob(job.meta.name, job.meta.uid)


def _kept(context: Context, job: JobView) -> bool:
    """Whether a Job stays: the wanted one, and the last of a finished run, for its logs.

    The latter only while its controller sees to the pods: not once one of them hangs.
    """
    if job is not context.job:
        return False
    if context.wanted is not None:
        return True
    hangs = any(context.overdue(pod) for pod in context.attempt_pods)
    return context.terminal and job.ending and not hangs and not expired(context)


def _pods(context: Context) -> Iterator[Action]:
    """Pods whose Job is gone: it must be, for its finalizer holds them until then."""
    with_job = {job.meta.attempt for job in context.jobs}
    for pod in context.pods:
        if pod.meta.attempt in with_job:
            continue
        if context.overdue(pod) and not pod.forced:
            yield DeletePod(pod.meta.name, pod.meta.uid, grace_seconds=0)
        elif not pod.meta.controller_uid and pod.meta.deletion_at is None:
            yield DeletePod(pod.meta.name, pod.meta.uid)


def _attempt_children(context: Context) -> Iterator[Action]:
    """A Service goes with its attempt's ConfigMap, which is watched and goes last."""
    for view in context.config_maps:
        attempt = view.meta.attempt
        if attempt is None or view.meta.name != attempt_name(context.run_name, attempt):
            continue
        if view.meta.deletion_at is None and not _in_use(context, view, attempt):
            for kind in (ChildKind.SERVICE, ChildKind.CONFIG_MAP):
                yield DeleteChild(kind, view.meta.name, context.uid)


def _in_use(context: Context, view: ConfigMapView, attempt: int) -> bool:
    if expired(context):
        return False
    if attempt == context.status.attempt and not context.ended:
        return True
    return any(job.meta.attempt == view.meta.attempt for job in context.jobs) or any(
        pod.live and pod.meta.attempt == view.meta.attempt for pod in context.pods
    )


def _run_children(context: Context) -> Iterator[Action]:
    """The account and its rights go with the progress ConfigMap, once the time is over."""
    name = progress_name(context.run_name)
    there = any(
        view.meta.name == name and view.meta.deletion_at is None for view in context.config_maps
    )
    if there and expired(context):
        account = account_name(context.run_name)
        for kind in (ChildKind.ROLE_BINDING, ChildKind.ROLE, ChildKind.SERVICE_ACCOUNT):
            yield DeleteChild(kind, account, context.uid)
        yield DeleteChild(ChildKind.CONFIG_MAP, name, context.uid)


def _finalizers(context: Context) -> Iterator[Action]:
    """A pod may patch its progress ConfigMap; a finalizer there would hang the namespace."""
    name = progress_name(context.run_name)
    for view in context.config_maps:
        if view.meta.name == name and set(view.meta.finalizers) - _COLLECTOR_FINALIZERS:
            yield StripFinalizers(view.meta.name, view.meta.uid)


def next_overdue(context: Context) -> datetime | None:
    """When the next terminating pod is taken for lost."""
    times = [overdue_at(pod) for pod in context.pods]
    return min((at for at in times if at is not None and at > context.now), default=None)
