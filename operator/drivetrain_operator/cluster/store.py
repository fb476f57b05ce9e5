"""What is known of the cluster: runs, their Jobs, pods and ConfigMaps, Events on these Jobs.

Fed by watches, by lists, and by answers to our own writes, which may come in any order: an
older state never replaces a newer one, and what was deleted does not come back. That rests
on resourceVersions being comparable, which Kubernetes promises. For one event loop; not
thread-safe.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from drivetrain_operator.cluster.keys import RunKey
from drivetrain_operator.cluster.pruning import KeptRun, View, run_of, view_of
from drivetrain_operator.cluster.resources import CONFIG_MAPS, EVENTS, JOBS, PODS, TRAINING_RUNS
from drivetrain_operator.cluster.versions import (
    ObjectName,
    Tombstones,
    name_of,
    number,
    version_of,
)
from drivetrain_operator.reconcile.snapshot import Observed, RunView
from drivetrain_operator.reconcile.views import ConfigMapView, JobEvent, JobView, PodView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from drivetrain_operator.cluster.resources import Resource
    from drivetrain_operator.manifests.kinds import ChildKind
    from drivetrain_operator.reconcile.fields import Object
    from drivetrain_operator.reconcile.snapshot import ForeignObject, RefusedChild

__all__ = ["ObjectName", "RunKey", "Store"]

EVENTS_OF_A_RUN: Final = 32
"""Events that are kept for a run: the newest."""
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Child:
    run: RunKey
    version: int
    view: View


@dataclass(slots=True)
class _Run:
    kept: KeptRun
    version: int
    foreign: tuple[ForeignObject, ...] = ()
    refused: RefusedChild | None = None


def _told_nobody(_: RunKey) -> None:
    """Nobody wants to know."""


class Store:
    """The newest known state around every run.

    Args:
        touched: Called with each run about which something became known that a decision may
            rest on; a queue's `add`. It must not call back.
    """

    def __init__(self, touched: Callable[[RunKey], object] = _told_nobody) -> None:
        self._touched = touched
        self._runs: dict[RunKey, _Run] = {}
        self._children: dict[Resource, dict[ObjectName, _Child]] = {
            kind: {} for kind in (JOBS, PODS, CONFIG_MAPS, EVENTS)
        }
        self._around: dict[RunKey, dict[tuple[Resource, ObjectName], _Child]] = {}
        self._deleted = Tombstones()

    # --- what comes in -----------------------------------------------------------------

    def put(self, resource: Resource, obj: Object) -> None:
        """Take note of an object as a watch or a list shows it.

        Args:
            resource: TRAINING_RUNS, JOBS, PODS, CONFIG_MAPS or EVENTS.
            obj: The object.
        """
        for key in self._put(resource, obj):
            self._touched(key)

    def absorb(self, resource: Resource, obj: Object) -> None:
        """Take note of the answer to a write of ours, of which nobody need be told."""
        self._put(resource, obj)

    def delete(self, resource: Resource, obj: Object) -> None:
        """An object is gone; `obj` is its last state."""
        name = name_of(obj)
        version = version_of(obj)
        known = self._known_version(resource, name)
        if known is not None and 0 < version < known:
            return
        self._remove(resource, name, version)

    def sweep(
        self, resource: Resource, namespace: str | None, seen: AbstractSet[ObjectName], version: str
    ) -> None:
        """Forget what a list did not show.

        Args:
            resource: What was listed.
            namespace: Where; None for everywhere.
            seen: What was there.
            version: The list's resourceVersion: what is newer is kept, seen or not.
        """
        at = number(version)
        for name in tuple(self._names(resource)):
            if name in seen or namespace not in (None, name[0]):
                continue
            known = self._known_version(resource, name) or 0
            if at == 0 or known <= at:
                self._remove(resource, name, at)

    def rewind(self) -> None:
        """The cluster was restored from a backup: anything may follow what is known."""
        for run in self._runs.values():
            run.version = 0
        for children in self._children.values():
            for child in children.values():
                child.version = 0
        self._deleted.found.clear()

    # --- what is known -----------------------------------------------------------------

    def observed(self, key: RunKey) -> Observed | None:
        """The snapshot of a run for `reconcile`; None where there is no such run.

        Raises:
            pydantic.ValidationError: its metadata or status cannot be read.
        """
        run = self._runs.get(key)
        if run is None:
            return None
        around = self._around.get(key, {})
        views = [child.view for _, child in sorted(around.items(), key=_by_name)]
        jobs = tuple(v for v in views if isinstance(v, JobView))
        uids = {job.meta.uid for job in jobs}
        return Observed(
            run=RunView.from_object(run.kept.as_object()),
            jobs=jobs,
            pods=tuple(v for v in views if isinstance(v, PodView)),
            config_maps=tuple(v for v in views if isinstance(v, ConfigMapView)),
            job_events=tuple(v for v in views if isinstance(v, JobEvent) and v.job_uid in uids),
            foreign=run.foreign,
            refused=run.refused,
        )

    def runs(self) -> Iterator[RunKey]:
        """Every run that is known."""
        return iter(tuple(self._runs))

    def phases(self) -> Counter[str]:
        """Runs by `status.phase`; the empty one is for those without a status."""
        return Counter(run.kept.phase for run in self._runs.values())

    def __contains__(self, key: RunKey) -> bool:
        """Whether there is such a run."""
        return key in self._runs

    def __len__(self) -> int:
        """Runs that are known."""
        return len(self._runs)

    # --- what is remembered beside it --------------------------------------------------

    def note_foreign(self, key: RunKey, foreign: ForeignObject) -> None:
        """A name that a child of the run needs is taken; the next snapshots tell it."""
        run = self._runs.get(key)
        if run is not None:
            run.foreign = (*_without(run.foreign, foreign.kind, foreign.name), foreign)

    def note_refused(self, key: RunKey, refused: RefusedChild) -> None:
        """A child of the run was refused; the next snapshots tell it."""
        run = self._runs.get(key)
        if run is not None:
            run.refused = refused

    def note_made(self, key: RunKey, kind: ChildKind, name: str) -> None:
        """The child of that name is the run's own now: nothing is in its way any more."""
        run = self._runs.get(key)
        if run is None:
            return
        run.foreign = _without(run.foreign, kind, name)
        if run.refused is not None and (run.refused.kind, run.refused.name) == (kind, name):
            run.refused = None

    # --- inside ------------------------------------------------------------------------

    def _put(self, resource: Resource, obj: Object) -> tuple[RunKey, ...]:
        """Keep the object where it is news; the runs for which it is."""
        name, version = name_of(obj), version_of(obj)
        known = self._known_version(resource, name)
        if (known is not None and 0 < version <= known) or (
            self._deleted.buried(resource, name, version)
        ):
            return ()
        if resource == TRAINING_RUNS:
            return self._put_run(RunKey(*name), obj, version)
        return self._put_child(resource, name, obj, version)

    def _put_run(self, key: RunKey, obj: Object, version: int) -> tuple[RunKey, ...]:
        kept = KeptRun.from_object(obj)
        run = self._runs.get(key)
        if run is None or run.kept.uid != kept.uid:
            self._runs[key] = _Run(kept, version)
            return (key,)
        news = not run.kept.same_as(kept)
        run.kept, run.version = kept, version
        return (key,) if news else ()

    def _put_child(
        self, resource: Resource, name: ObjectName, obj: Object, version: int
    ) -> tuple[RunKey, ...]:
        key = run_of(resource, obj)
        old = self._children[resource].get(name)
        if key is None:
            return self._drop_child(resource, name)
        try:
            view = view_of(resource, obj)
        except ValueError as error:
            _log.warning(
                "an object that cannot be read is left out",
                kind=resource.kind, namespace=name[0], name=name[1], error=str(error),
            )  # fmt: skip
            return ()
        if old is not None and old.run == key:
            news = old.view != view
            old.version, old.view = version, view
            return (key,) if news else ()
        dropped = self._drop_child(resource, name)
        child = _Child(key, version, view)
        self._children[resource][name] = child
        around = self._around.setdefault(key, {})
        around[resource, name] = child
        if resource == EVENTS:
            self._limit_events(around)
        return (*dropped, key)

    def _limit_events(self, around: dict[tuple[Resource, ObjectName], _Child]) -> None:
        events = [found for found in around if found[0] == EVENTS]
        if len(events) > EVENTS_OF_A_RUN:
            oldest = min(events, key=lambda found: around[found].version)
            self._drop_child(*oldest)

    def _drop_child(self, resource: Resource, name: ObjectName) -> tuple[RunKey, ...]:
        child = self._children[resource].pop(name, None)
        if child is None:
            return ()
        around = self._around[child.run]
        del around[resource, name]
        if not around:
            del self._around[child.run]
        return (child.run,)

    def _remove(self, resource: Resource, name: ObjectName, version: int) -> None:
        self._deleted.add(resource, name, version)
        for key in self._drop(resource, name):
            self._touched(key)

    def _drop(self, resource: Resource, name: ObjectName) -> tuple[RunKey, ...]:
        if resource != TRAINING_RUNS:
            return self._drop_child(resource, name)
        key = RunKey(*name)
        return (key,) if self._runs.pop(key, None) is not None else ()

    def _names(self, resource: Resource) -> Iterable[ObjectName]:
        return self._runs if resource == TRAINING_RUNS else self._children[resource]

    def _known_version(self, resource: Resource, name: ObjectName) -> int | None:
        if resource == TRAINING_RUNS:
            run = self._runs.get(RunKey(*name))
            return run.version if run is not None else None
        child = self._children[resource].get(name)
        return child.version if child is not None else None


def _by_name(item: tuple[tuple[Resource, ObjectName], _Child]) -> ObjectName:
    return item[0][1]


def _without(
    foreign: tuple[ForeignObject, ...], kind: ChildKind, name: str
) -> tuple[ForeignObject, ...]:
    return tuple(f for f in foreign if (f.kind, f.name) != (kind, name))
