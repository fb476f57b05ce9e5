"""Frozen views of the objects around a run, parsed from Kubernetes-shaped dicts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from drivetrain_api.digest import PROGRESS_LIMIT, Digest, decode
from drivetrain_operator.manifests.names import PROGRESS_KEY, RUN_JSON, TRAINER_CONTAINER
from drivetrain_operator.reconcile.fields import (
    Meta,
    Object,
    count,
    items,
    mapping,
    optional_count,
    text,
    time,
)

if TYPE_CHECKING:
    from datetime import datetime


class JobConditionType(StrEnum):
    """Condition types of a batch/v1 Job; others are left out of the view."""

    SUSPENDED = "Suspended"
    SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
    COMPLETE = "Complete"
    FAILURE_TARGET = "FailureTarget"
    FAILED = "Failed"


_ENDINGS = frozenset(JobConditionType) - {JobConditionType.SUSPENDED}


@dataclass(frozen=True)
class JobCondition:
    """A condition of a Job whose status is True."""

    type: JobConditionType
    reason: str
    message: str


@dataclass(frozen=True)
class JobView:
    """A Job: its conditions that hold, and the counts that its controller keeps."""

    meta: Meta
    suspended: bool
    """`spec.suspend`: Kueue's hold, or somebody's; ours deletes the Job instead."""
    started_at: datetime | None
    """`status.startTime`; set anew when a suspended Job is resumed."""
    active: int
    ready: int
    terminating: int
    succeeded: int
    failed: int
    conditions: tuple[JobCondition, ...]

    @classmethod
    def from_object(cls, obj: Object) -> JobView:
        """Read a batch/v1 Job."""
        status = mapping(obj, "status")
        known = set(JobConditionType)
        return cls(
            meta=Meta.from_object(obj),
            suspended=mapping(obj, "spec").get("suspend") is True,
            started_at=time(status, "startTime"),
            active=count(status, "active"),
            ready=count(status, "ready"),
            terminating=count(status, "terminating"),
            succeeded=count(status, "succeeded"),
            failed=count(status, "failed"),
            conditions=tuple(
                JobCondition(JobConditionType(c["type"]), text(c, "reason"), text(c, "message"))
                for c in items(status, "conditions")
                if c.get("type") in known and c.get("status") == "True"
            ),
        )

    def condition(self, *types: JobConditionType) -> JobCondition | None:
        """The first condition of these types, in the order given, that holds."""
        held = {c.type: c for c in self.conditions}
        return next((held[t] for t in types if t in held), None)

    @property
    def held(self) -> bool:
        """Whether it is suspended, or its controller has yet to act on the resumption."""
        return self.suspended or self.condition(JobConditionType.SUSPENDED) is not None

    @property
    def ending(self) -> bool:
        """Whether its controller ended it, or is about to, and sees to its pods."""
        return any(c.type in _ENDINGS for c in self.conditions)


class PodPhase(StrEnum):
    """`status.phase` of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @classmethod
    def of(cls, value: str) -> PodPhase:
        """The phase of that name; Pending before the kubelet spoke, Unknown for any other."""
        if not value:
            return cls.PENDING
        return cls(value) if value in set(cls) else cls.UNKNOWN


@dataclass(frozen=True)
class Waiting:
    """Why a container does not run yet."""

    reason: str
    message: str


@dataclass(frozen=True)
class Terminated:
    """How a container ended."""

    exit_code: int
    reason: str
    """OOMKilled, Error, Completed, StartError..."""
    message: str
    """Content of its termination message file."""
    signal: int | None
    finished_at: datetime | None


@dataclass(frozen=True)
class ContainerView:
    """A container of a pod; neither waiting nor terminated means that it runs."""

    name: str
    init: bool
    waiting: Waiting | None
    terminated: Terminated | None

    @property
    def trainer(self) -> bool:
        """Whether its exit codes follow the contract."""
        return self.name == TRAINER_CONTAINER and not self.init

    @classmethod
    def from_status(cls, status: Object, *, init: bool) -> ContainerView:
        """Read one entry of `containerStatuses` or `initContainerStatuses`."""
        state = mapping(status, "state")
        waiting, ended = mapping(state, "waiting"), mapping(state, "terminated")
        return cls(
            name=text(status, "name"),
            init=init,
            waiting=(
                Waiting(text(waiting, "reason"), text(waiting, "message"))
                if "waiting" in state
                else None
            ),
            terminated=(
                Terminated(
                    exit_code=count(ended, "exitCode"),
                    reason=text(ended, "reason"),
                    message=text(ended, "message"),
                    signal=optional_count(ended, "signal"),
                    finished_at=time(ended, "finishedAt"),
                )
                if ended
                else None
            ),
        )


@dataclass(frozen=True)
class PodView:
    """A pod: where it stands, why it waits, how its containers ended."""

    meta: Meta
    index: int | None
    """Completion index: the node rank."""
    node: str
    phase: PodPhase
    reason: str
    """`status.reason`, such as Evicted."""
    message: str
    scheduled: bool
    unscheduled_message: str
    """The scheduler's words while the pod is not scheduled."""
    disruption: str | None
    """Reason and words of a DisruptionTarget condition that holds."""
    ready: bool
    containers: tuple[ContainerView, ...]

    @property
    def live(self) -> bool:
        """Whether something of it may run, or still come to run."""
        return self.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    @property
    def forced(self) -> bool:
        """Whether it was deleted with grace 0: what is left waits for finalizers alone."""
        return self.meta.deletion_at is not None and self.meta.deletion_grace_seconds == 0

    @property
    def trainer(self) -> ContainerView | None:
        """Its trainer container, once the kubelet reports one."""
        return next((c for c in self.containers if c.trainer), None)

    @classmethod
    def from_object(cls, obj: Object) -> PodView:
        """Read a v1 Pod."""
        status = mapping(obj, "status")
        meta = mapping(obj, "metadata")
        node = text(mapping(obj, "spec"), "nodeName")
        conditions = {text(c, "type"): c for c in items(status, "conditions")}
        scheduled = conditions.get("PodScheduled", {})
        disruption = conditions.get("DisruptionTarget", {})
        index = text(mapping(meta, "annotations"), INDEX_ANNOTATION)
        return cls(
            meta=Meta.from_object(obj),
            index=int(index) if index.isascii() and index.isdigit() else None,
            node=node,
            phase=PodPhase.of(text(status, "phase")),
            reason=text(status, "reason"),
            message=text(status, "message"),
            scheduled=bool(node),
            unscheduled_message="" if node else text(scheduled, "message"),
            disruption=(
                f"{text(disruption, 'reason')}: {text(disruption, 'message')}"
                if disruption.get("status") == "True"
                else None
            ),
            ready=conditions.get("Ready", {}).get("status") == "True",
            containers=(
                *(
                    ContainerView.from_status(c, init=True)
                    for c in items(status, "initContainerStatuses")
                ),
                *(
                    ContainerView.from_status(c, init=False)
                    for c in items(status, "containerStatuses")
                ),
            ),
        )


INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class ConfigMapView:
    """A ConfigMap of the run: an attempt's immutable run.json, or the progress of the run."""

    meta: Meta
    digest: Digest | None
    """The validated report; None where there is none, or where it is not one."""
    run_json_sha256: str
    """SHA-256 of its run.json; empty without one."""

    @classmethod
    def from_object(cls, obj: Object) -> ConfigMapView:
        """Read a v1 ConfigMap."""
        data = mapping(obj, "data")
        run_json = text(data, RUN_JSON)
        return cls(
            meta=Meta.from_object(obj),
            digest=decode(text(data, PROGRESS_KEY), PROGRESS_LIMIT),
            run_json_sha256=(hashlib.sha256(run_json.encode()).hexdigest() if run_json else ""),
        )


@dataclass(frozen=True)
class JobEvent:
    """A Warning Event on a Job of the run: quota, PodSecurity and accounts show only there."""

    job_uid: str
    reason: str
    message: str
    last_seen: datetime | None

    @classmethod
    def from_object(cls, obj: Object) -> JobEvent:
        """Read a v1 Event."""
        series = mapping(obj, "series")
        return cls(
            job_uid=text(mapping(obj, "involvedObject"), "uid"),
            reason=text(obj, "reason"),
            message=text(obj, "message"),
            last_seen=(
                time(series, "lastObservedTime")
                or time(obj, "lastTimestamp")
                or time(obj, "eventTime")
            ),
        )
