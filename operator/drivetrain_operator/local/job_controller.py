"""What the Job controller does with an Indexed Job of `backoffLimit` 0, as a pure function.

Written from the behaviour of Kubernetes 1.34: a failed pod gives FailureTarget, by the first
rule of the podFailurePolicy that matches; the Job then deletes its other pods, and is Failed
once all are terminal. A suspended Job deletes its pods and counts none of them as failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drivetrain_operator.local import pod_object as pods_
from drivetrain_operator.local.store import timestamp
from drivetrain_operator.reconcile.views import JobConditionType, PodPhase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

Object = dict[str, Any]


@dataclass(frozen=True)
class JobStep:
    """What the controller does about a Job, once."""

    status: Object
    """The whole status."""
    create: tuple[int, ...] = ()
    """Completion indexes to make a pod for."""
    delete: tuple[str, ...] = ()
    """UIDs of pods to delete with their own grace period."""
    count: tuple[str, ...] = ()
    """UIDs of pods that `status` now counts: their finalizer goes."""


def step(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], now: datetime) -> JobStep:
    """The next step of a Job.

    Args:
        job: The Job, its status included.
        pods: Its pods that exist.
        now: Time of the conditions that become true.
    """
    status = job.get("status", {})
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    live = [pod for pod in pods if not pods_.is_terminal(pod)]
    fresh = [pod for pod in pods if pods_.is_terminal(pod) and not pods_.is_counted(pod)]
    suspended = job["spec"].get("suspend") is True
    counts = _Counts.of(status).plus(fresh, suspended=suspended)
    create: tuple[int, ...] = ()
    delete: tuple[str, ...] = ()
    if not _finished(conditions):
        conditions = _suspension(conditions, suspended=suspended, now=now)
        if not suspended:
            conditions = _verdict(conditions, job, fresh, counts, now)
        if _holds(conditions, JobConditionType.FAILURE_TARGET) or suspended:
            delete = tuple(p["metadata"]["uid"] for p in live if not pods_.is_deleting(p))
        elif not _holds(conditions, JobConditionType.SUCCESS_CRITERIA_MET):
            create = _missing(job, pods, counts)
        conditions = _finish(conditions, live, now)
    return JobStep(
        status=_status(status, conditions, counts, live, suspended=suspended, now=now),
        create=create,
        delete=delete,
        count=tuple(p["metadata"]["uid"] for p in fresh),
    )


@dataclass(frozen=True)
class _Counts:
    succeeded: frozenset[int]
    failed: int

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> _Counts:
        indexes = status.get("completedIndexes", "")
        return cls(frozenset(int(i) for i in indexes.split(",") if i), status.get("failed", 0))

    def plus(self, fresh: Sequence[Mapping[str, Any]], *, suspended: bool) -> _Counts:
        phases = [(pods_.index_of(p), p["status"]["phase"]) for p in fresh]
        done = {index for index, phase in phases if phase == PodPhase.SUCCEEDED}
        failures = 0 if suspended else sum(phase == PodPhase.FAILED for _, phase in phases)
        return _Counts(self.succeeded | done, self.failed + failures)


def _holds(conditions: Mapping[str, Object], kind: JobConditionType) -> bool:
    return conditions.get(kind, {}).get("status") == "True"


def _finished(conditions: Mapping[str, Object]) -> bool:
    return _holds(conditions, JobConditionType.COMPLETE) or _holds(
        conditions, JobConditionType.FAILED
    )


def _with(
    conditions: Mapping[str, Object],
    kind: JobConditionType,
    reason: str,
    message: str,
    now: datetime,
    *,
    value: str = "True",
) -> dict[str, Object]:
    new = {
        "type": kind.value,
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }
    return {**conditions, kind.value: new}


def _suspension(
    conditions: dict[str, Object], *, suspended: bool, now: datetime
) -> dict[str, Object]:
    kind = JobConditionType.SUSPENDED
    held = _holds(conditions, kind)
    if suspended and not held:
        return _with(conditions, kind, "JobSuspended", "Job suspended", now)
    if held and not suspended:
        return _with(conditions, kind, "JobResumed", "Job resumed", now, value="False")
    return conditions


def _verdict(
    conditions: dict[str, Object],
    job: Mapping[str, Any],
    fresh: Sequence[Mapping[str, Any]],
    counts: _Counts,
    now: datetime,
) -> dict[str, Object]:
    """FailureTarget or SuccessCriteriaMet, where one is due and neither was given."""
    if any(
        _holds(conditions, kind)
        for kind in (JobConditionType.FAILURE_TARGET, JobConditionType.SUCCESS_CRITERIA_MET)
    ):
        return conditions
    for pod in fresh:
        words = _policy_failure(job, pod)
        if words is not None:
            return _with(
                conditions, JobConditionType.FAILURE_TARGET, "PodFailurePolicy", words, now
            )
    if counts.failed > job["spec"].get("backoffLimit", 6):
        return _with(
            conditions,
            JobConditionType.FAILURE_TARGET,
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
            now,
        )
    if len(counts.succeeded) >= job["spec"].get("completions", 1):
        return _with(
            conditions,
            JobConditionType.SUCCESS_CRITERIA_MET,
            "CompletionsReached",
            "Reached expected number of succeeded pods",
            now,
        )
    return conditions


def _policy_failure(job: Mapping[str, Any], pod: Mapping[str, Any]) -> str | None:
    """The Job controller's words where the first matching rule fails the Job."""
    if pod["status"]["phase"] != PodPhase.FAILED:
        return None
    rules = job["spec"].get("podFailurePolicy", {}).get("rules", ())
    for index, rule in enumerate(rules):
        match = _matches(rule, pod)
        if match is not None:
            if rule["action"] == "FailJob":
                return f"{match} matching FailJob rule at index {index}"
            return None
    return None


def _matches(rule: Mapping[str, Any], pod: Mapping[str, Any]) -> str | None:
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for pattern in rule.get("onPodConditions", ()):
        for condition in pod["status"]["conditions"]:
            if condition["type"] == pattern["type"] and condition["status"] == pattern["status"]:
                return f"Pod {name} has condition {pattern['type']}"
    requirement = rule.get("onExitCodes")
    state = pods_.terminated(pod)
    if requirement is None or state is None or state["exitCode"] == 0:
        return None
    container = pods_.container_of(pod)["name"]
    if requirement.get("containerName") not in (None, container):
        return None
    named = state["exitCode"] in requirement["values"]
    if named is not (requirement["operator"] == "In"):
        return None
    return f"Container {container} for pod {name} failed with exit code {state['exitCode']}"


def _missing(
    job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], counts: _Counts
) -> tuple[int, ...]:
    """Indexes without a pod; with podReplacementPolicy Failed one that ends still has its own."""
    held = {pods_.index_of(p) for p in pods} | counts.succeeded
    return tuple(i for i in range(job["spec"].get("completions", 1)) if i not in held)


def _finish(
    conditions: dict[str, Object], live: Sequence[Mapping[str, Any]], now: datetime
) -> dict[str, Object]:
    """Failed follows FailureTarget, Complete SuccessCriteriaMet, once no pod lives."""
    if live:
        return conditions
    for target, final in (
        (JobConditionType.FAILURE_TARGET, JobConditionType.FAILED),
        (JobConditionType.SUCCESS_CRITERIA_MET, JobConditionType.COMPLETE),
    ):
        if _holds(conditions, target):
            cause = conditions[target]
            return _with(conditions, final, cause["reason"], cause["message"], now)
    return conditions


def _status(
    before: Mapping[str, Any],
    conditions: Mapping[str, Object],
    counts: _Counts,
    live: Sequence[Mapping[str, Any]],
    *,
    suspended: bool,
    now: datetime,
) -> Object:
    ending = sum(pods_.is_deleting(p) for p in live)
    status: Object = {
        "active": len(live) - ending,
        "ready": sum(pods_.is_ready(p) and not pods_.is_deleting(p) for p in live),
        "terminating": ending,
        "succeeded": len(counts.succeeded),
        "failed": counts.failed,
        "completedIndexes": ",".join(str(i) for i in sorted(counts.succeeded)),
        "conditions": list(conditions.values()),
    }
    if not suspended:
        status["startTime"] = before.get("startTime", timestamp(now))
    if _holds(conditions, JobConditionType.COMPLETE):
        status["completionTime"] = before.get("completionTime", timestamp(now))
    return status
