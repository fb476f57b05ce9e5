"""What a reconcile pass asks for: a status to write, actions to apply, Events to record.

Whoever applies a `Decision` does so in this order:

1. the status, where it differs from the observed one or where `Decision.fenced` is set,
   always with the resourceVersion that was observed: a conflict means that the snapshot
   was stale, and that nothing else of the decision may be applied;
2. the actions, in order, until the first failure; each may be applied twice without harm;
3. the Events, once the status is written: no later pass tells of its transitions again.

Afterwards the run is reconciled again when something observed changes, and at the latest
after `Decision.wake_after` seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.status import TrainingRunStatus
    from drivetrain_operator.manifests.kinds import ChildKind


@dataclass(frozen=True)
class Create:
    """Create a child once, by POST.

    AlreadyExists is a success where the object's controller is this run (same owner UID).
    Otherwise the object is foreign: it is left alone, the action fails, and the next
    snapshots name it in `Observed.foreign`.
    """

    kind: ChildKind
    name: str
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class DeleteJob:
    """Delete this very Job (UID as precondition), propagation Background; absence is success."""

    name: str
    uid: str


@dataclass(frozen=True)
class DeletePod:
    """Delete this very pod (UID as precondition); absence is success."""

    name: str
    uid: str
    grace_seconds: int | None = None
    """0 forces (nothing waits for the kubelet); None keeps the pod's own grace period."""


@dataclass(frozen=True)
class DeleteChild:
    """Delete a child by name where its controller is `owner_uid`; else nothing; both succeed."""

    kind: ChildKind
    name: str
    owner_uid: str


@dataclass(frozen=True)
class StripFinalizers:
    """Take the finalizers off the run's progress ConfigMap, which a pod could write there."""

    name: str
    uid: str


Action: TypeAlias = Create | DeleteJob | DeletePod | DeleteChild | StripFinalizers


class EventType(StrEnum):
    """Kubernetes' two event types."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True)
class EventRecord:
    """An Event about the run, once for each transition."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True)
class Decision:
    """The outcome of one reconcile pass."""

    status: TrainingRunStatus
    """The whole status as it must be; equal to the observed one where nothing changed."""
    actions: tuple[Action, ...] = ()
    """What to apply, in order, after the status."""
    events: tuple[EventRecord, ...] = ()
    """What to record, after the actions."""
    wake_after: float | None = None
    """Seconds until time alone changes the decision; None where it never does."""

    @property
    def fenced(self) -> bool:
        """Whether the status must be written even unchanged, to prove the snapshot current."""
        return any(isinstance(action, Create) for action in self.actions)
