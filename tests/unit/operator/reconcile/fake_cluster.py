"""A small Kubernetes in memory: objects as plain dicts, controllers as explicit steps.

Behaves as a real 1.34 was seen to: Background deletion, job-tracking finalizers that hold
a pod while its Job is there, FailureTarget before Failed, garbage collection by owner.
Nothing moves by itself: a test (or a state machine) calls each controller when it likes.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any

from drivetrain_api import labels
from drivetrain_api.status import TrainingRunStatus
from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.reconcile.decision import (
    Action,
    Create,
    Decision,
    DeleteChild,
    DeleteJob,
    DeletePod,
    EventRecord,
    StripFinalizers,
)
from drivetrain_operator.reconcile.engine import reconcile
from drivetrain_operator.reconcile.snapshot import ForeignObject, Observed, RefusedChild, RunView
from drivetrain_operator.reconcile.views import ConfigMapView, JobEvent, JobView, PodView

Object = dict[str, Any]
START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
RULES = ("DisruptionTarget", "exit 2 or 3", "exit 75")
TERMINAL = ("Succeeded", "Failed")


class Answer(Enum):
    """How the API server answers a write."""

    OK = auto()
    LOST = auto()
    """An error, and nothing was written."""
    TIMEOUT = auto()
    """An error, though it was written."""


class WriteError(Exception):
    """A write that was not confirmed."""


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def manifest(name: str = "walk", **spec: Any) -> Object:
    """A TrainingRun as the API server returns it."""
    return {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {
            "name": name,
            "namespace": "lab",
            "uid": "run-uid-1",
            "generation": 1,
            "resourceVersion": "1",
            "creationTimestamp": stamp(START),
        },
        "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}} | spec,
    }


class FakeCluster:
    """One run, its children, and the operator's cached view of them."""

    def __init__(self, **spec: Any) -> None:
        self.now = START
        self.run: Object = manifest(**spec)
        self.objects: dict[tuple[str, str], Object] = {}
        self.job_events: list[Object] = []
        self.foreign: dict[tuple[ChildKind, str], ForeignObject] = {}
        self.refused: RefusedChild | None = None
        self.forbids: dict[ChildKind, str] = {}
        """Kinds that the API server will not have, with its words."""
        self.recorded: list[EventRecord] = []
        self.statuses: list[TrainingRunStatus] = [TrainingRunStatus()]
        self.lost_nodes: set[str] = set()
        self._numbers = itertools.count(1)
        self._cache: tuple[list[Object], list[Object]] = ([], [])
        self._cached_run = copy.deepcopy(self.run)
        self.sync()

    # --- what the operator sees and does ---------------------------------------------

    def sync(self) -> None:
        """Let the watches catch up."""
        self.sync_run()
        self._cache = (
            copy.deepcopy(list(self.objects.values())),
            copy.deepcopy(self.job_events),
        )

    def sync_run(self) -> None:
        self._cached_run = copy.deepcopy(self.run)

    def observe(self) -> Observed:
        objects, events = self._cache

        def of(kind: str) -> Iterator[Object]:
            return (o for o in objects if o["kind"] == kind)

        return Observed(
            run=RunView.from_object(self._cached_run),
            jobs=tuple(JobView.from_object(o) for o in of("Job")),
            pods=tuple(PodView.from_object(o) for o in of("Pod")),
            config_maps=tuple(ConfigMapView.from_object(o) for o in of("ConfigMap")),
            job_events=tuple(JobEvent.from_object(o) for o in events),
            foreign=tuple(self.foreign.values()),
            refused=self.refused,
        )

    def decide(self) -> Decision:
        return reconcile(self.observe(), self.now)

    def apply(self, decision: Decision, answers: Iterator[Answer] | None = None) -> None:
        """Apply as `Decision` says: status, then actions up to an error, then Events."""
        answers = answers or itertools.repeat(Answer.OK)
        if decision.fenced or decision.status != RunView.from_object(self._cached_run).status:
            self._write(next(answers), lambda: self._write_status(decision.status))
        try:
            for action in decision.actions:
                self._write(next(answers), lambda action=action: self._act(action))
        finally:
            self.recorded.extend(decision.events)

    def step(self) -> Decision:
        """A fresh look, a decision, and all of it applied."""
        self.sync()
        decision = self.decide()
        self.apply(decision)
        return decision

    def settle(self, passes: int = 8) -> Decision:
        """Steps until nothing is left to do at this moment; the last decision."""
        for _ in range(passes):
            before = self.status
            decision = self.step()
            if decision.status == before and not decision.actions:
                assert not decision.events
                return decision
        raise AssertionError(f"does not settle: {decision}")

    def _write(self, answer: Answer, write: Callable[[], None]) -> None:
        if answer is not Answer.LOST:
            write()
        if answer is not Answer.OK:
            raise WriteError(answer)

    def _write_status(self, status: TrainingRunStatus) -> None:
        if self._cached_run["metadata"]["resourceVersion"] != self._version:
            raise WriteError("conflict")
        wire = json.loads(status.model_dump_json(by_alias=True, exclude_none=True))
        if wire != self.run.get("status"):
            self.run["status"] = wire
            self._touch()
            self.statuses.append(TrainingRunStatus.model_validate(wire))

    def _act(self, action: Action) -> None:
        match action:
            case Create():
                self._create(action)
            case DeleteJob(name, uid):
                self._delete("Job", name, uid)
            case DeletePod(name, uid, grace):
                pod = self._get("Pod", name, uid)
                if pod is not None and grace == 0:
                    self._force(pod)
                elif pod is not None:
                    self.terminate(pod)
            case DeleteChild(kind, name, owner):
                found = self.objects.get((kind.value, name))
                if found is not None and controller(found).get("uid") == owner:
                    del self.objects[kind.value, name]
            case StripFinalizers(name, uid):
                found = self._get("ConfigMap", name, uid)
                if found is not None:
                    found["metadata"].pop("finalizers", None)

    def _create(self, action: Create) -> None:
        key = (action.kind.value, action.name)
        held = self.objects.get(key)
        if held is None and action.kind in self.forbids:
            self.refused = RefusedChild(action.kind, action.name, self.forbids[action.kind])
            raise WriteError(f"{action.kind} {action.name} is refused")
        if held is None:
            obj = json.loads(json.dumps(action.manifest))
            obj["metadata"] |= {
                "uid": f"uid-{next(self._numbers)}",
                "creationTimestamp": stamp(self.now),
            }
            self.objects[key] = obj
        elif controller(held).get("uid") != self.uid:
            self.foreign[action.kind, action.name] = ForeignObject(
                action.kind, action.name, self.now
            )
            raise WriteError(f"{action.kind} {action.name} is foreign")
        self.foreign.pop((action.kind, action.name), None)
        if self.refused is not None and self.refused.name == action.name:
            self.refused = None

    def _get(self, kind: str, name: str, uid: str) -> Object | None:
        found = self.objects.get((kind, name))
        return found if found is not None and found["metadata"]["uid"] == uid else None

    def _delete(self, kind: str, name: str, uid: str) -> None:
        if self._get(kind, name, uid) is not None:
            del self.objects[kind, name]

    def _force(self, pod: Object) -> None:
        """Grace 0: gone, unless the job-tracking finalizer of a Job that is there holds it."""
        pod["metadata"] |= {"deletionTimestamp": stamp(self.now), "deletionGracePeriodSeconds": 0}
        if not self._has_job(pod):
            del self.objects["Pod", pod["metadata"]["name"]]

    # --- the user ----------------------------------------------------------------------

    @property
    def uid(self) -> str:
        return str(self.run["metadata"]["uid"])

    @property
    def _version(self) -> str:
        return str(self.run["metadata"]["resourceVersion"])

    @property
    def status(self) -> TrainingRunStatus:
        return self.statuses[-1]

    def _touch(self) -> None:
        self.run["metadata"]["resourceVersion"] = str(int(self._version) + 1)

    def edit(self, **spec: Any) -> None:
        self.run["spec"] |= spec
        self.run["metadata"]["generation"] += 1
        self._touch()

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    # --- controllers -------------------------------------------------------------------

    @property
    def jobs(self) -> list[Object]:
        """Jobs that have a spec: a foreign one here is but a name."""
        return [o for o in self.objects.values() if o["kind"] == "Job" and "spec" in o]

    @property
    def pods(self) -> list[Object]:
        return [o for o in self.objects.values() if o["kind"] == "Pod"]

    @property
    def live_pods(self) -> list[Object]:
        return [pod for pod in self.pods if pod["status"]["phase"] not in TERMINAL]

    def _has_job(self, pod: Object) -> bool:
        owner = controller(pod)
        return self._get("Job", owner.get("name", ""), owner.get("uid", "")) is not None

    def job_controller(self) -> None:
        for job in self.jobs:
            job.setdefault("status", {})
            pods = [p for p in self.pods if controller(p).get("uid") == job["metadata"]["uid"]]
            held = conditions(job)
            if "Complete" in held or "Failed" in held:
                continue
            if "SuccessCriteriaMet" in held:
                set_condition(job, "Complete", "CompletionsReached")
                continue
            if "FailureTarget" in held:
                self._end_pods(job, pods)
            elif job["spec"].get("suspend"):
                set_condition(job, "Suspended", "JobSuspended")
                for pod in pods:
                    self.terminate(pod)
                self._break_rule(job, pods)
            elif not self._judge(job, pods):
                self._resume(job)
                self._fill(job, pods)
            self._count(job)

    def _resume(self, job: Object) -> None:
        if "Suspended" in conditions(job) or "startTime" not in job["status"]:
            drop_condition(job, "Suspended")
            job["status"]["startTime"] = stamp(self.now)

    def _fill(self, job: Object, pods: list[Object]) -> None:
        indexes = {index_of(pod) for pod in pods} | set(job["status"]["doneIndexes"])
        for index in range(job["spec"]["completions"]):
            if index not in indexes:
                self._add_pod(job, index)

    def _add_pod(self, job: Object, index: int) -> None:
        number = next(self._numbers)
        name = f"{job['metadata']['name']}-{index}-{number}"
        template = job["spec"]["template"]
        self.objects["Pod", name] = {
            "kind": "Pod",
            "metadata": {
                "name": name,
                "uid": f"uid-{number}",
                "labels": dict(template["metadata"]["labels"]),
                "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
                "creationTimestamp": stamp(self.now),
                "ownerReferences": [
                    {
                        "kind": "Job",
                        "name": job["metadata"]["name"],
                        "uid": job["metadata"]["uid"],
                        "controller": True,
                    }
                ],
            },
            "spec": {
                "terminationGracePeriodSeconds": template["spec"]["terminationGracePeriodSeconds"]
            },
            "status": {"phase": "Pending", "conditions": []},
        }

    def _judge(self, job: Object, pods: list[Object]) -> bool:
        """Whether the Job is over by its pods; says so in its conditions."""
        if self._break_rule(job, pods):
            return True
        if any(pod["status"]["phase"] == "Failed" for pod in pods):
            set_condition(job, "FailureTarget", "BackoffLimitExceeded", "too many failures")
            return True
        done = job["status"].setdefault("doneIndexes", [])
        succeeded = {index_of(p) for p in pods if p["status"]["phase"] == "Succeeded"}
        done.extend(succeeded - set(done))
        if len(done) == job["spec"]["completions"]:
            set_condition(job, "SuccessCriteriaMet", "CompletionsReached")
            return True
        return False

    def _break_rule(self, job: Object, pods: list[Object]) -> bool:
        """Whether a failed pod matches a rule; the pods of a suspended Job are asked as well."""
        rules = job["spec"]["podFailurePolicy"]["rules"]
        for pod in pods:
            index = rule_index(pod) if pod["status"]["phase"] == "Failed" else None
            if index is not None and index < len(rules):
                words = f"{RULES[index]}, exit code {exit_code(pod)}, rule at index {index}"
                set_condition(job, "FailureTarget", "PodFailurePolicy", words)
                return True
        return False

    def _end_pods(self, job: Object, pods: list[Object]) -> None:
        live = [pod for pod in pods if pod["status"]["phase"] not in TERMINAL]
        for pod in live:
            self.terminate(pod)
        if not live:
            target = conditions(job)["FailureTarget"]
            set_condition(job, "Failed", target["reason"], target["message"])

    def _count(self, job: Object) -> None:
        pods = [p for p in self.pods if controller(p).get("uid") == job["metadata"]["uid"]]
        live = [p for p in pods if p["status"]["phase"] not in TERMINAL]
        job["status"] |= {
            "active": sum("deletionTimestamp" not in p["metadata"] for p in live),
            "terminating": sum("deletionTimestamp" in p["metadata"] for p in live),
        }

    def terminate(self, pod: Object) -> None:
        """Begin a graceful deletion; a pod that never ran, or is over, is gone at once."""
        if pod["status"]["phase"] != "Running":
            self.objects.pop(("Pod", pod["metadata"]["name"]), None)
        elif "deletionTimestamp" not in pod["metadata"]:
            grace = pod["spec"]["terminationGracePeriodSeconds"]
            pod["metadata"] |= {
                "deletionTimestamp": stamp(self.now + timedelta(seconds=grace)),
                "deletionGracePeriodSeconds": grace,
            }

    def garbage_collector(self) -> None:
        for key, obj in list(self.objects.items()):
            owner = controller(obj)
            if owner.get("kind") == "TrainingRun" and owner["uid"] == self.uid and self.run_gone:
                del self.objects[key]
            elif owner.get("kind") == "Job" and not self._has_job(obj):
                self.terminate(obj)

    @property
    def run_gone(self) -> bool:
        return "deletionTimestamp" in self.run["metadata"]

    # --- the kubelets ------------------------------------------------------------------

    def start(self, pod: Object, node: str = "node-1") -> None:
        if pod["status"]["phase"] == "Pending":
            pod["spec"]["nodeName"] = node
            pod["status"]["phase"] = "Running"

    def finish(self, pod: Object, code: int, reason: str = "", message: str = "") -> None:
        """The trainer container ends; a terminating pod's object is then taken away."""
        pod["status"]["phase"] = "Succeeded" if code == 0 else "Failed"
        pod["status"]["containerStatuses"] = [
            {
                "name": "trainer",
                "state": {
                    "terminated": {
                        "exitCode": code,
                        "reason": reason or ("Error" if code else "Completed"),
                        "message": message,
                        "finishedAt": stamp(self.now),
                    }
                },
            }
        ]

    def reap(self) -> None:
        """Terminating pods on live nodes end, and their objects go."""
        for pod in self.pods:
            if "deletionTimestamp" in pod["metadata"] and not self.on_lost_node(pod):
                if self._has_job(pod):  # its finalizer goes once the Job has counted it
                    if pod["status"]["phase"] not in TERMINAL:
                        self.finish(pod, 75)
                    self.job_controller()
                self.objects.pop(("Pod", pod["metadata"]["name"]), None)

    def on_lost_node(self, pod: Object) -> bool:
        return pod["spec"].get("nodeName") in self.lost_nodes

    def disrupt(self, pod: Object, reason: str = "EvictionByEvictionAPI") -> None:
        if pod["status"]["phase"] not in TERMINAL:
            set_condition(pod, "DisruptionTarget", reason, "evicted")
            self.terminate(pod)

    def report(self, digest: str) -> None:
        """What the launcher patches into the progress ConfigMap."""
        found = self.objects.get(("ConfigMap", f"{self.run['metadata']['name']}-progress"))
        if found is not None:
            found["data"] = {"progress": digest}

    # --- shortcuts for tests -----------------------------------------------------------

    def begin(self, *, running: bool = True) -> None:
        """From nothing, or from a finished back-off, to an attempt with pods."""
        self.step()
        self.job_controller()
        if running:
            for pod in self.live_pods:
                self.start(pod)
        self.settle()

    def job(self, attempt: int | None = None) -> Object:
        number = self.status.attempt if attempt is None else attempt
        return self.objects["Job", f"{self.run['metadata']['name']}-a{number}"]

    def pods_of(self, attempt: int) -> list[Object]:
        return [p for p in self.pods if p["metadata"]["labels"][labels.ATTEMPT] == str(attempt)]

    def clear(self) -> None:
        """All controllers, until whatever may go has gone."""
        for _ in range(4):
            self.garbage_collector()
            self.job_controller()
            self.reap()
            self.settle()


def controller(obj: Object) -> Object:
    owners = obj["metadata"].get("ownerReferences", [])
    return next((owner for owner in owners if owner.get("controller")), {})


def index_of(pod: Object) -> int:
    return int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


def exit_code(pod: Object) -> int:
    statuses = pod["status"].get("containerStatuses", [])
    return statuses[0]["state"]["terminated"]["exitCode"] if statuses else 0


def rule_index(pod: Object) -> int | None:
    """The podFailurePolicy rule that a failed pod meets."""
    if "DisruptionTarget" in conditions(pod):
        return 0
    return {2: 1, 3: 1, 75: 2}.get(exit_code(pod))


def conditions(obj: Object) -> dict[str, Object]:
    held = obj.get("status", {}).get("conditions", [])
    return {c["type"]: c for c in held if c["status"] == "True"}


def set_condition(obj: Object, type_: str, reason: str, message: str = "") -> None:
    drop_condition(obj, type_)
    obj["status"]["conditions"].append(
        {"type": type_, "status": "True", "reason": reason, "message": message}
    )


def drop_condition(obj: Object, type_: str) -> None:
    held = obj.setdefault("status", {}).setdefault("conditions", [])
    obj["status"]["conditions"] = [c for c in held if c["type"] != type_]
