"""The objects of the local executor as JSON files: what the API server holds on a cluster.

Below the state folder::

    locks/<run>.lock
    runs/<run>/trainingrun.json
    runs/<run>/events.json
    runs/<run>/objects/<Kind>/<name>.json
    runs/<run>/pods/<pod>/          working folders of pods that exist
    runs/<run>/logs/                what pods wrote, kept after they are gone
"""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING, Any, Final

from drivetrain_api import labels
from drivetrain_api.compose import parse_run
from drivetrain_api.errors import SpecError, Violation
from drivetrain_operator.local.files import read_json, write_json
from drivetrain_operator.local.immutable import changed
from drivetrain_operator.local.lock import Holder, RunLock, holder_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from drivetrain_api.status import TrainingRunStatus
    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.reconcile.decision import EventRecord

Object = dict[str, Any]

EVENTS_KEPT: Final = 100
"""Newest events of a run that are kept."""


class LocalStore:
    """TrainingRuns and their children under one state folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, name: str) -> Path:
        """Everything about one run, its lock apart."""
        return self.root / "runs" / name

    def lock(self, name: str) -> RunLock:
        """The lock of a run; to be held by whoever writes."""
        return RunLock(self._lock_path(name))

    def holder(self, name: str) -> Holder | None:
        """Who drives a run right now."""
        return holder_of(self._lock_path(name))

    def _lock_path(self, name: str) -> Path:
        return self.root / "locks" / f"{name}.lock"

    def names(self) -> tuple[str, ...]:
        """Names of the stored runs, sorted."""
        return tuple(sorted(p.parent.name for p in self.root.glob("runs/*/trainingrun.json")))

    def get(self, name: str) -> TrainingRun | None:
        """The run of that name.

        Raises:
            ValueError: naming the file, where it cannot be read as a TrainingRun.
        """
        path = self.folder(name) / "trainingrun.json"
        content = read_json(path)
        if content is None:
            return None
        try:
            return parse_run(content)
        except SpecError as error:
            raise ValueError(f"{path}: {error}") from error

    def apply(self, wanted: TrainingRun, *, storage: Path, now: datetime) -> TrainingRun:
        """Create the run, or give the stored one a new spec, as an API server would.

        The caller holds the lock. Status, UID and creation time of a stored run stay; the
        generation rises where the spec differs.

        Args:
            wanted: The manifest.
            storage: The folder that stands for the volume of a new run.
            now: Creation time of a new run.

        Raises:
            SpecError: for a field that must not change; the stored run stays as it was.
        """
        stored = self.get(wanted.metadata.name)
        if stored is None:
            metadata = wanted.metadata.model_copy(
                update={
                    "uid": str(uuid.uuid4()),
                    "generation": 1,
                    "creation_timestamp": now.replace(microsecond=0),
                    "annotations": {
                        **wanted.metadata.annotations,
                        labels.LOCAL_STORAGE: str(storage),
                    },
                }
            )
            return self.put(wanted.model_copy(update={"metadata": metadata}))
        refused = (*_moved(stored, wanted), *changed(stored.spec, wanted.spec))
        if refused:
            raise SpecError(refused)
        kept = {
            key: value
            for key, value in stored.metadata.annotations.items()
            if key == labels.LOCAL_STORAGE
        }
        metadata = stored.metadata.model_copy(
            update={
                "labels": wanted.metadata.labels,
                "annotations": {**wanted.metadata.annotations, **kept},
            }
        )
        return self._change(stored.model_copy(update={"metadata": metadata}), wanted)

    def _change(self, stored: TrainingRun, wanted: TrainingRun) -> TrainingRun:
        before, after = (s.model_dump(exclude_unset=True) for s in (stored.spec, wanted.spec))
        metadata = stored.metadata.model_copy(
            update={"generation": stored.metadata.generation + (before != after)}
        )
        return self.put(stored.model_copy(update={"spec": wanted.spec, "metadata": metadata}))

    def suspend(self, name: str, *, by: str) -> TrainingRun:
        """Set `spec.suspend`, and write down who asked for it."""
        run = self._existing(name)
        annotations = {**run.metadata.annotations, labels.SUSPENDED_BY: by}
        marked = run.model_copy(
            update={"metadata": run.metadata.model_copy(update={"annotations": annotations})}
        )
        spec = run.spec.model_copy(update={"suspend": True})
        return self._change(marked, marked.model_copy(update={"spec": spec}))

    def set_status(self, name: str, status: TrainingRunStatus) -> TrainingRun:
        """Replace the status."""
        return self.put(self._existing(name).model_copy(update={"status": status}))

    def put(self, run: TrainingRun) -> TrainingRun:
        """Write the run; gives it back with its new resourceVersion."""
        version = str(int(run.metadata.resource_version or "0") + 1)
        metadata = run.metadata.model_copy(update={"resource_version": version})
        written = run.model_copy(update={"metadata": metadata})
        write_json(self.folder(run.metadata.name) / "trainingrun.json", as_object(written))
        return written

    def _existing(self, name: str) -> TrainingRun:
        run = self.get(name)
        if run is None:
            raise LookupError(f"no run {name!r} under {self.root}")
        return run

    def remove(self, name: str) -> None:
        """Forget a run: status, children, logs. What it trained lies elsewhere and stays."""
        folder = self.folder(name)
        (folder / "trainingrun.json").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)

    def objects(self, name: str, kind: str) -> tuple[Object, ...]:
        """The run's children of that kind, by name."""
        paths = sorted((self.folder(name) / "objects" / kind).glob("*.json"))
        return tuple(found for path in paths if (found := read_json(path)) is not None)

    def put_object(self, name: str, child: Mapping[str, Any]) -> None:
        """Write a child."""
        write_json(self._object_path(name, child["kind"], child["metadata"]["name"]), child)

    def remove_object(self, name: str, kind: str, child: str) -> None:
        """Forget a child; absence is success."""
        self._object_path(name, kind, child).unlink(missing_ok=True)

    def _object_path(self, name: str, kind: str, child: str) -> Path:
        return self.folder(name) / "objects" / kind / f"{child}.json"

    def record(self, name: str, events: Sequence[EventRecord], now: datetime) -> None:
        """Append Events; the oldest beyond `EVENTS_KEPT` go."""
        if not events:
            return
        entries = [
            {"time": timestamp(now), "type": e.type, "reason": e.reason, "message": e.message}
            for e in events
        ]
        path = self.folder(name) / "events.json"
        write_json(path, {"events": [*self.events(name), *entries][-EVENTS_KEPT:]})

    def events(self, name: str) -> tuple[Object, ...]:
        """The recorded Events, oldest first: time, type, reason, message."""
        return tuple((read_json(self.folder(name) / "events.json") or {}).get("events", ()))


def _moved(stored: TrainingRun, wanted: TrainingRun) -> Iterator[Violation]:
    before, after = stored.metadata.namespace, wanted.metadata.namespace
    if before != after:
        yield Violation("metadata.namespace", f"the stored run is in {before!r}; got {after!r}")


def as_object(run: TrainingRun) -> Object:
    """The run as it stands on the wire: camelCase, what was never set left out."""
    content = run.model_dump(mode="json", by_alias=True, exclude_unset=True)
    content = {"apiVersion": run.api_version, "kind": run.kind, **content}
    content["status"] = run.status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return content


def timestamp(moment: datetime) -> str:
    """RFC 3339 with seconds, as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
