"""Pods as Kubernetes-shaped objects: made from a Job's template, moved along by new copies."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from drivetrain_operator.local.store import timestamp
from drivetrain_operator.manifests.names import TRAINER_CONTAINER
from drivetrain_operator.reconcile.views import INDEX_ANNOTATION, PodPhase

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

Object = dict[str, Any]

JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""Finalizer of a pod that its Job has not counted yet."""
NODE: Final = "local"
"""Name of the one node."""


def new_pod(job: Mapping[str, Any], index: int, now: datetime) -> Object:
    """The pod of completion index `index`, scheduled and not started."""
    template, meta = job["spec"]["template"], job["metadata"]
    marks = template.get("metadata", {})
    name = f"{meta['name']}-{index}"
    identity = {
        "batch.kubernetes.io/controller-uid": meta["uid"],
        "batch.kubernetes.io/job-name": meta["name"],
        INDEX_ANNOTATION: str(index),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "uid": str(uuid.uuid4()),
            "creationTimestamp": timestamp(now),
            "labels": {**marks.get("labels", {}), **identity},
            "annotations": {**marks.get("annotations", {}), INDEX_ANNOTATION: str(index)},
            "finalizers": [JOB_TRACKING],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {**template["spec"], "nodeName": NODE, "hostname": name},
        "status": {
            "phase": PodPhase.PENDING,
            "conditions": [_condition("PodScheduled", now)],
        },
    }


def container_of(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container that becomes a process; sidecars of a `podTemplate` do not."""
    containers: list[Mapping[str, Any]] = pod["spec"]["containers"]
    return next(c for c in containers if c["name"] == TRAINER_CONTAINER)


def started(pod: Object, now: datetime) -> Object:
    """The pod with its container running."""
    return _moved(
        pod,
        now,
        phase=PodPhase.RUNNING,
        state={"running": {"startedAt": timestamp(now)}},
        conditions=[_condition("PodScheduled", now), _condition("Ready", now)],
    )


def unschedulable(pod: Object, message: str, now: datetime) -> Object:
    """The pod without a node."""
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    condition = _condition("PodScheduled", now, "Unschedulable", message, status="False")
    return {
        **pod,
        "spec": spec,
        "status": {"phase": PodPhase.PENDING, "conditions": [condition]},
    }


def ended(
    pod: Object,
    *,
    exit_code: int,
    reason: str,
    message: str,
    now: datetime,
    signal: int | None = None,
    disruption: tuple[str, str] | None = None,
) -> Object:
    """The pod with its container terminated, for good.

    Args:
        pod: The pod as it was.
        exit_code: The container's.
        reason: Completed, Error, OOMKilled or StartError.
        message: Content of the termination message file.
        now: When.
        signal: Number of the signal that ended it.
        disruption: Reason and message of a DisruptionTarget condition.
    """
    running = _state(pod).get("running", {})
    ending: Object = {
        "exitCode": exit_code,
        "reason": reason,
        "message": message,
        "startedAt": running.get("startedAt", timestamp(now)),
        "finishedAt": timestamp(now),
    }
    if signal is not None:
        ending["signal"] = signal
    conditions = [_condition("PodScheduled", now)]
    if disruption is not None:
        conditions.append(_condition("DisruptionTarget", now, *disruption))
    return _moved(
        pod,
        now,
        phase=PodPhase.SUCCEEDED if exit_code == 0 else PodPhase.FAILED,
        state={"terminated": ending},
        conditions=conditions,
    )


def deleting(pod: Object, grace: int, ends: datetime) -> Object:
    """The pod with a deletionTimestamp; a shorter grace replaces a longer one."""
    marks = {"deletionTimestamp": timestamp(ends), "deletionGracePeriodSeconds": grace}
    return {**pod, "metadata": {**pod["metadata"], **marks}}


def counted(pod: Object) -> Object:
    """The pod without its Job's finalizer."""
    kept = [name for name in pod["metadata"].get("finalizers", ()) if name != JOB_TRACKING]
    return {**pod, "metadata": {**pod["metadata"], "finalizers": kept}}


def is_deleting(pod: Mapping[str, Any]) -> bool:
    """Whether somebody deleted it."""
    return "deletionTimestamp" in pod["metadata"]


def is_terminal(pod: Mapping[str, Any]) -> bool:
    """Whether nothing of it runs any more."""
    return pod["status"]["phase"] in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def is_counted(pod: Mapping[str, Any]) -> bool:
    """Whether its Job has taken note of how it ended."""
    return JOB_TRACKING not in pod["metadata"].get("finalizers", ())


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether its process runs."""
    return bool(pod["status"]["phase"] == PodPhase.RUNNING)


def index_of(pod: Mapping[str, Any]) -> int:
    """Its completion index."""
    return int(pod["metadata"]["annotations"][INDEX_ANNOTATION])


def grace_of(pod: Mapping[str, Any]) -> int:
    """Seconds between SIGTERM and SIGKILL."""
    return int(pod["spec"].get("terminationGracePeriodSeconds", 30))


def terminated(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How its container ended; None while it has not."""
    found: Mapping[str, Any] | None = _state(pod).get("terminated")
    return found


def _state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = pod["status"].get("containerStatuses", ())
    state: Mapping[str, Any] = statuses[0]["state"] if statuses else {}
    return state


def _moved(
    pod: Object, now: datetime, *, phase: PodPhase, state: Object, conditions: list[Object]
) -> Object:
    container = {
        "name": container_of(pod)["name"],
        "ready": phase is PodPhase.RUNNING,
        "restartCount": 0,
        "state": state,
    }
    status = {
        "startTime": pod["status"].get("startTime", timestamp(now)),
        "phase": phase,
        "conditions": conditions,
        "containerStatuses": [container],
    }
    return {**pod, "status": status}


def _condition(
    kind: str, now: datetime, reason: str = "", message: str = "", *, status: str = "True"
) -> Object:
    condition = {"type": kind, "status": status, "lastTransitionTime": timestamp(now)}
    if reason:
        condition |= {"reason": reason, "message": message}
    return condition
