"""Applying a `Decision`: the status as a fence, then each action, then the Events.

Every action may be applied twice without harm, and an object is never taken for ours by
its name: its owner or its UID decides.
"""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

from drivetrain_operator.cluster.client import ContentType, Method
from drivetrain_operator.cluster.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from drivetrain_operator.cluster.keys import RunKey
from drivetrain_operator.cluster.resources import (
    CONFIG_MAPS,
    JOBS,
    PODS,
    TRAINING_RUNS,
    resource_of,
)
from drivetrain_operator.cluster.status_writer import FIELD_MANAGER, StatusWriter
from drivetrain_operator.reconcile.conditions import bounded
from drivetrain_operator.reconcile.decision import (
    Action,
    Create,
    DeleteChild,
    DeleteJob,
    DeletePod,
    StripFinalizers,
)
from drivetrain_operator.reconcile.fields import Meta
from drivetrain_operator.reconcile.snapshot import ForeignObject, RefusedChild

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivetrain_api.trainingrun import ObjectMeta
    from drivetrain_operator.cluster.client import Cluster
    from drivetrain_operator.cluster.resources import Resource
    from drivetrain_operator.manifests.kinds import ChildKind
    from drivetrain_operator.reconcile.decision import Decision, EventRecord
    from drivetrain_operator.reconcile.fields import Object
    from drivetrain_operator.reconcile.snapshot import RunView


_REFUSALS: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.INTERNAL_SERVER_ERROR,
    }
)
"""Of a POST; 500 is what a webhook that cannot be reached ends in."""


class Snapshots(Protocol):
    """Where the next snapshot comes from; a `Store` is one.

    What the API server answers to a write is in the next snapshot: a watch that is a moment
    behind does not have it written once more.
    """

    def absorb(self, resource: Resource, obj: Object) -> None:
        """The object is there now, in this state."""

    def note_foreign(self, key: RunKey, foreign: ForeignObject) -> None:
        """A child of this run met somebody else's object."""

    def note_refused(self, key: RunKey, refused: RefusedChild) -> None:
        """A child of this run was refused by the server."""

    def note_made(self, key: RunKey, kind: ChildKind, name: str) -> None:
        """The child of that name is the run's own now: nothing is in its way any more."""


class Recorder(Protocol):
    """Where Events go."""

    def record(self, run: ObjectMeta, events: Sequence[EventRecord]) -> None:
        """Write these Events about the run, soon; never fails."""


class Applier:
    """Applies decisions.

    Args:
        cluster: The API server.
        snapshots: Where answers go, and taken names are remembered.
        recorder: Where Events go.
        now: The time, with an offset.
    """

    def __init__(
        self,
        cluster: Cluster,
        snapshots: Snapshots,
        recorder: Recorder,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._snapshots = snapshots
        self._recorder = recorder
        self._now = now
        self._statuses = StatusWriter(cluster)

    async def apply(
        self, run: RunView, decision: Decision, written: Callable[[Object], None]
    ) -> ForeignObject | None:
        """Write the status where it differs or fences, then act, then tell.

        The Events tell of the status' transitions, which no later pass sees again: once it
        is written they are recorded, whatever becomes of the actions.

        Args:
            run: The snapshot that was decided on.
            decision: What is to be done.
            written: Told of the run as the server stored it, before any action is tried;
                not called where no status had to be written.

        Returns:
            The object whose name was found taken; its creation and what comes after it was
            left undone.

        Raises:
            ConflictError: the snapshot was stale, nothing was applied; or, from an action,
                the server lost a race.
            ApiError: the first failure; what comes after it was left undone.
        """
        if decision.fenced or decision.status != run.status:
            stored = await self._statuses.write(run.metadata, decision.status)
            self._snapshots.absorb(TRAINING_RUNS, stored)
            written(stored)
        try:
            return await self._act(run.metadata, decision.actions)
        finally:
            self._recorder.record(run.metadata, decision.events)

    async def _act(self, run: ObjectMeta, actions: Sequence[Action]) -> ForeignObject | None:
        """Act in order until a name is found taken, which is then the result."""
        for action in actions:
            match action:
                case Create():
                    foreign = await self._create(run, action)
                    if foreign is not None:
                        return foreign
                case DeleteJob(name, uid):
                    await self._delete(run, JOBS, name, uid)
                case DeletePod(name, uid, grace):
                    await self._delete(run, PODS, name, uid, grace)
                case DeleteChild():
                    await self._delete_child(run, action)
                case StripFinalizers(name, uid):
                    await self._strip(run, name, uid)
        return None

    async def _create(self, run: ObjectMeta, action: Create) -> ForeignObject | None:
        resource, key = resource_of(action.kind), RunKey(run.namespace, run.name)
        try:
            made = await self._cluster.request(
                Method.POST,
                resource,
                namespace=run.namespace,
                params={"fieldManager": FIELD_MANAGER},
                body=action.manifest,
            )
        except AlreadyExistsError as taken:
            if not await self._owned(run, action, taken):
                foreign = ForeignObject(action.kind, action.name, self._now())
                self._snapshots.note_foreign(key, foreign)
                return foreign
        except ApiError as error:
            if _refused(error):
                refused = RefusedChild(action.kind, action.name, bounded(error.message))
                self._snapshots.note_refused(key, refused)
            raise
        else:
            self._learn(resource, made)
        self._snapshots.note_made(key, action.kind, action.name)
        return None

    async def _owned(self, run: ObjectMeta, action: Create, taken: AlreadyExistsError) -> bool:
        """Whether the object of that name is the run's own.

        Raises:
            AlreadyExistsError: it is gone by now, or about to be: to be tried again.
        """
        resource = resource_of(action.kind)
        obj = await self._find(run, resource, action.name)
        if obj is None:
            raise taken
        found = Meta.from_object(obj)
        if found.controller_uid != run.uid:
            return False
        if found.deletion_at is not None:
            raise taken
        self._learn(resource, obj)
        return True

    def _learn(self, resource: Resource, obj: Object) -> None:
        """Have the next snapshot hold an object of a kind that is watched."""
        if resource in (JOBS, CONFIG_MAPS):
            self._snapshots.absorb(resource, obj)

    async def _delete_child(self, run: ObjectMeta, action: DeleteChild) -> None:
        resource = resource_of(action.kind)
        obj = await self._find(run, resource, action.name)
        found = Meta.from_object(obj) if obj is not None else None
        if found is not None and found.controller_uid == action.owner_uid:
            await self._delete(run, resource, action.name, found.uid)

    async def _find(self, run: ObjectMeta, resource: Resource, name: str) -> Object | None:
        try:
            return await self._cluster.request(
                Method.GET, resource, namespace=run.namespace, name=name
            )
        except NotFoundError:
            return None

    async def _delete(
        self, run: ObjectMeta, resource: Resource, name: str, uid: str, grace: int | None = None
    ) -> None:
        """Delete this very object; without a policy, a Job's pods would be orphaned."""
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            await self._cluster.request(
                Method.DELETE, resource, namespace=run.namespace, name=name, body=options
            )
        except NotFoundError:
            return
        except ConflictError as error:
            # Another object has the name now: this very one is gone. Any other conflict
            # is a race that the server lost.
            if "UID" not in error.message:
                raise

    async def _strip(self, run: ObjectMeta, name: str, uid: str) -> None:
        """A UID in a patch must be the object's own, so that no other is touched."""
        try:
            await self._cluster.request(
                Method.PATCH,
                CONFIG_MAPS,
                namespace=run.namespace,
                name=name,
                params={"fieldManager": FIELD_MANAGER},
                body={"metadata": {"uid": uid, "finalizers": None}},
                content_type=ContentType.MERGE_PATCH,
            )
        except NotFoundError:
            return
        except InvalidError as error:
            if not any(cause.field == "metadata.uid" for cause in error.causes):
                raise


def _refused(error: ApiError) -> bool:
    """Whether the server looked at the object and would not have it.

    A namespace that is being deleted takes nothing new: nobody needs to be told.
    """
    ending = any(cause.field == "metadata.namespace" for cause in error.causes)
    return error.status in _REFUSALS and not ending
