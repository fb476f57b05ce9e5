"""The control plane of one run on one machine: objects, Jobs, and the node beneath them."""

from __future__ import annotations

import socket
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from drivetrain_operator.local import job_controller
from drivetrain_operator.local import pod_object as pods_
from drivetrain_operator.local.files import read_tail
from drivetrain_operator.local.pod_environment import Rendezvous
from drivetrain_operator.local.store import LocalStore, timestamp
from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.manifests.names import PROGRESS_KEY
from drivetrain_operator.reconcile.decision import (
    Action,
    Create,
    DeleteChild,
    DeleteJob,
    DeletePod,
    StripFinalizers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from drivetrain_operator.local.node import LocalNode

Object = dict[str, Any]

POD: Final = "Pod"
SETTLE_ROUNDS: Final = 8
"""Steps of the controllers after which a pass gives others their turn."""
_LOST: Final = ("ExecutorLost", "the executor that ran this pod ended before it")
_PROGRESS_BYTES: Final = 1 << 16


class LeftoverError(RuntimeError):
    """Processes of an earlier executor that nothing ends."""


class LocalBackend:
    """Applies actions and moves Jobs and pods along; every change is on disk when it returns."""

    def __init__(
        self, store: LocalStore, run: str, node: LocalNode, *, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._run = run
        self._node = node
        self._clock = clock
        self.version = 0
        """Rises with every change of an object."""
        self._objects: dict[tuple[str, str], Object] = {}
        self._rendezvous: dict[str, Rendezvous] = {}
        self._progress_seen: dict[str, int] = {}
        for kind in (*ChildKind, POD):
            for obj in store.objects(run, kind):
                self._objects[kind, obj["metadata"]["name"]] = obj

    def recover(self) -> int:
        """End what an earlier executor left behind; how many pods that were.

        Its pods count as disrupted: their processes are dead, by no fault of their own.

        Raises:
            LeftoverError: a process of theirs cannot be killed.
        """
        if not self._node.kill_leftovers():
            raise LeftoverError(f"processes of run {self._run!r} withstand SIGKILL")
        lost = [pod for pod in self.pods() if not pods_.is_terminal(pod)]
        for pod in lost:
            self._node.clear(pod)
            self._put(
                pods_.ended(
                    pod,
                    exit_code=137,
                    reason="Error",
                    message="",
                    now=self._clock(),
                    disruption=_LOST,
                )
            )
        return len(lost)

    def apply(self, action: Action) -> None:
        """Apply one action; applying it again does no harm."""
        match action:
            case Create():
                self._create(action)
            case DeleteJob():
                self._remove_if(ChildKind.JOB, action.name, action.uid)
            case DeletePod():
                self._delete_pod(action)
            case DeleteChild():
                self._delete_child(action)
            case StripFinalizers():
                pass  # pods reach a file here, never the object

    def _create(self, action: Create) -> None:
        if (action.kind, action.name) in self._objects:
            return
        now = timestamp(self._clock())
        manifest = action.manifest
        identity = {"uid": str(uuid.uuid4()), "creationTimestamp": now}
        created: Object = {**manifest, "metadata": {**manifest["metadata"], **identity}}
        if action.kind is ChildKind.JOB:
            # There is no queue to wait in: what Kueue would admit later starts now.
            created["spec"] = {k: v for k, v in manifest["spec"].items() if k != "suspend"}
        elif action.kind is ChildKind.CLAIM:
            created["status"] = {"phase": "Bound"}
        elif PROGRESS_KEY in manifest.get("data", {}):
            self._progress_file(action.name).unlink(missing_ok=True)
        self._put(created)

    def _remove_if(self, kind: ChildKind, name: str, uid: str) -> None:
        found = self._objects.get((kind, name))
        if found is not None and found["metadata"]["uid"] == uid:
            self._forget(kind, name)

    def _delete_pod(self, action: DeletePod) -> None:
        pod = self._objects.get((POD, action.name))
        if pod is not None and pod["metadata"]["uid"] == action.uid:
            self._begin_deletion(pod, action.grace_seconds)

    def _begin_deletion(self, pod: Object, grace: int | None) -> None:
        """Mark a pod and signal its process; a later, shorter grace wins."""
        before = pod["metadata"].get("deletionGracePeriodSeconds")
        grace = pods_.grace_of(pod) if grace is None else grace
        if before is not None and before <= grace:
            return
        now = self._clock()
        marked = pods_.deleting(pod, grace, now + timedelta(seconds=grace))
        self._put(marked)
        if marked["status"]["phase"] == "Pending":
            # Nothing was started: there is nothing to wait for.
            self._put(pods_.ended(marked, exit_code=137, reason="Error", message="", now=now))
        self._node.stop(marked, grace)

    def _delete_child(self, action: DeleteChild) -> None:
        found = self._objects.get((action.kind, action.name))
        owners = found["metadata"].get("ownerReferences", ()) if found else ()
        if any(o.get("controller") and o["uid"] == action.owner_uid for o in owners):
            self._forget(action.kind, action.name)
            if action.kind is ChildKind.CONFIG_MAP:
                self._progress_file(action.name).unlink(missing_ok=True)

    def tick(self) -> None:
        """Take note of ended pods, and let Jobs and pods follow until they rest."""
        now = self._clock()
        by_uid = {pod["metadata"]["uid"]: pod for pod in self.pods()}
        for pod in self._node.advance(by_uid, now):
            self._put(pod)
        for _ in range(SETTLE_ROUNDS):
            before = self.version
            for job in self.jobs():
                self._step(job, now)
            self._collect()
            if self.version == before:
                return

    def _step(self, job: Object, now: datetime) -> None:
        pods = [pod for pod in self.pods() if _controller(pod) == job["metadata"]["uid"]]
        result = job_controller.step(job, pods, now)
        if result.status != job.get("status"):
            self._put({**job, "status": result.status})
        for index in result.create:
            pod = pods_.new_pod(job, index, now)
            self._put(pod)
            self._start(pod, now)
        for pod in pods:
            uid = pod["metadata"]["uid"]
            if uid in result.delete:
                self._begin_deletion(pod, None)
            if uid in result.count:
                self._put(pods_.counted(pod))

    def _start(self, pod: Object, now: datetime) -> None:
        rendezvous = self._rendezvous.setdefault(
            _controller(pod), Rendezvous("127.0.0.1", _free_port())
        )
        maps = {m["metadata"]["name"]: m for m in self.config_maps()}
        self._put(self._node.start(pod, rendezvous=rendezvous, config_maps=maps, now=now))

    def _collect(self) -> None:
        """Pods without their Job are deleted; deleted pods that are over and counted go."""
        jobs = {job["metadata"]["uid"] for job in self.jobs()}
        for pod in self.pods():
            orphaned = _controller(pod) not in jobs
            if not pods_.is_terminal(pod):
                if orphaned and not pods_.is_deleting(pod):
                    self._begin_deletion(pod, None)
            elif orphaned or (pods_.is_deleting(pod) and pods_.is_counted(pod)):
                self._forget(POD, pod["metadata"]["name"])
                self._node.remove(pod)

    def kill(self) -> None:
        """SIGKILL to every pod: the second Ctrl-C."""
        living = [pod for pod in self.pods() if not pods_.is_terminal(pod)]
        for pod in living:
            self._node.stop(pod, 0)  # before anything is written: the disk may be full
        for pod in living:
            self._begin_deletion(pod, 0)

    def jobs(self) -> tuple[Object, ...]:
        """The Jobs."""
        return self._of(ChildKind.JOB)

    def pods(self) -> tuple[Object, ...]:
        """The pods."""
        return self._of(POD)

    def config_maps(self) -> tuple[Object, ...]:
        """The ConfigMaps; a progress ConfigMap holds what its file holds."""
        return tuple(self._with_progress(found) for found in self._of(ChildKind.CONFIG_MAP))

    def _with_progress(self, config_map: Object) -> Object:
        if PROGRESS_KEY not in config_map.get("data", {}):
            return config_map
        text = read_tail(self._progress_file(config_map["metadata"]["name"]), _PROGRESS_BYTES)
        return {**config_map, "data": {PROGRESS_KEY: text}}

    def progress_changed(self) -> bool:
        """Whether a progress file was replaced since this was last asked."""
        seen = {}
        for path in (self._node.place.folder / "progress").glob("*.json"):
            try:
                seen[path.name] = path.stat().st_mtime_ns
            except FileNotFoundError:
                continue
        changed, self._progress_seen = seen != self._progress_seen, seen
        return changed

    def live(self) -> bool:
        """Whether any pod may still run."""
        return any(not pods_.is_terminal(pod) for pod in self.pods())

    def descriptors(self) -> frozenset[tuple[str, int]]:
        """UIDs of pods, each with the descriptor that becomes readable when it ends."""
        return self._node.descriptors()

    def wake_after(self) -> float | None:
        """Seconds until `tick` has something to do that no descriptor tells of."""
        return self._node.wake_after()

    def close(self) -> None:
        """Leave nothing running."""
        self._node.close()

    def _progress_file(self, config_map: str) -> Path:
        return self._node.place.folder / "progress" / f"{config_map}.json"

    def _of(self, kind: str) -> tuple[Object, ...]:
        return tuple(obj for (of, _), obj in self._objects.items() if of == kind)

    def _put(self, obj: Object) -> None:
        self._store.put_object(self._run, obj)
        self._objects[obj["kind"], obj["metadata"]["name"]] = obj
        self.version += 1

    def _forget(self, kind: str, name: str) -> None:
        self._store.remove_object(self._run, kind, name)
        if self._objects.pop((kind, name), None) is not None:
            self.version += 1


def _controller(pod: Mapping[str, Any]) -> str:
    """UID of the Job that controls a pod."""
    return str(pod["metadata"]["ownerReferences"][0]["uid"])


def _free_port() -> int:
    """A port that was free a moment ago: asked for as late as can be, when a pod starts."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
