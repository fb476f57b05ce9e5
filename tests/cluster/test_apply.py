"""Decisions applied to a real API server: once, twice, and on what is not ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.kubernetes.api import Api, Object, wait_for
from tests.support.kubernetes.calls import Selector
from tests.support.kubernetes.connection import connected
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.faults import Fault, Refuse
from tests.support.kubernetes.proxy import Proxy

from drivetrain_api.base import API_VERSION, KIND
from drivetrain_operator.cluster.apply import Applier
from drivetrain_operator.cluster.client import Cluster
from drivetrain_operator.cluster.errors import ApiError, ConflictError, ForbiddenError
from drivetrain_operator.cluster.events import EventRecorder
from drivetrain_operator.cluster.keys import RunKey
from drivetrain_operator.cluster.resources import TRAINING_RUNS
from drivetrain_operator.cluster.store import Store
from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.reconcile.decision import (
    Action,
    Decision,
    DeleteChild,
    DeleteJob,
    DeletePod,
    EventRecord,
    EventType,
    StripFinalizers,
)
from drivetrain_operator.reconcile.engine import reconcile
from drivetrain_operator.reconcile.snapshot import ForeignObject, Observed, RunView

pytestmark = pytest.mark.cluster

CHILDREN = (
    ("v1", "ConfigMap", "walk-progress"),
    ("v1", "ServiceAccount", "walk-trainer"),
    ("rbac.authorization.k8s.io/v1", "Role", "walk-trainer"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "walk-trainer"),
    ("v1", "ConfigMap", "walk-a1"),
    ("v1", "Service", "walk-a1"),
    ("batch/v1", "Job", "walk-a1"),
    ("v1", "PersistentVolumeClaim", "walk-storage"),
)


@dataclass
class Bench:
    """A namespace with one run, and the applier with all its neighbours."""

    api: Api
    namespace: str
    kubeconfig: Path
    store: Store = field(default_factory=Store)

    def run(self, **spec: object) -> Object:
        created = self.api.create(
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": "walk"},
                "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}} | spec,
            },
            namespace=self.namespace,
        )
        self.store.put(TRAINING_RUNS, created)
        return created

    def stored(self) -> Object:
        return self.get(API_VERSION, KIND, "walk")

    def view(self) -> RunView:
        return RunView.from_object(self.stored())

    def get(self, api: str, kind: str, name: str) -> Object:
        return self.api.get(api, kind, name, self.namespace)

    def find(self, api: str, kind: str, name: str) -> Object | None:
        return self.api.find(api, kind, name, self.namespace)

    def apply(self, decision: Decision, view: RunView | None = None) -> ForeignObject | None:
        seen = view or self.view()
        self.written: list[Object] = []

        async def act(cluster: Cluster) -> ForeignObject | None:
            async with EventRecorder(cluster, "operator-0") as recorder:
                applier = Applier(cluster, self.store, recorder)
                return await applier.apply(seen, decision, self.written.append)

        return connected(self.kubeconfig, act)

    def act(self, *actions: Action) -> ForeignObject | None:
        return self.apply(Decision(self.view().status, actions))

    def decide(self) -> Decision:
        return reconcile(Observed(self.view()), datetime.now(UTC))

    def observed(self) -> Observed:
        """What the store tells once the watch has caught up."""
        self.store.put(TRAINING_RUNS, self.stored())
        observed = self.store.observed(RunKey(self.namespace, "walk"))
        assert observed is not None
        return observed

    def made(self) -> Object | None:
        """The Job, after one more try to make it."""
        observed = self.observed()
        with contextlib.suppress(ForbiddenError):
            self.apply(reconcile(observed, datetime.now(UTC)), observed.run)
        return self.find("batch/v1", "Job", "walk-a1")

    def events(self) -> list[Object]:
        fields = "involvedObject.kind=TrainingRun"
        return self.api.objects("v1", "Event", self.namespace, fieldSelector=fields)

    def versions(self) -> dict[str, str]:
        return {
            f"{kind}/{name}": found["metadata"]["uid"]
            for api, kind, name in CHILDREN
            if (found := self.find(api, kind, name)) is not None
        }


@pytest.fixture
def bench(api: Api, namespace: str, kubeconfig: Path) -> Bench:
    return Bench(api, namespace, kubeconfig)


@pytest.fixture
def behind(bench: Bench, control_plane: ControlPlane, proxy: Proxy, tmp_path: Path) -> Bench:
    """The bench with its applier behind the proxy."""
    path = tmp_path / "behind"
    control_plane.write_kubeconfig(path, url=proxy.url, namespace=bench.namespace)
    return Bench(bench.api, bench.namespace, path)


def config_map(name: str, **metadata: object) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


# --- a whole attempt ---------------------------------------------------------------------


def test_a_fresh_run_gets_its_whole_first_attempt_once(bench: Bench) -> None:
    uid = bench.run(storage={"size": "1Gi"})["metadata"]["uid"]
    assert bench.apply(bench.decide()) is None
    assert [run["status"]["attempt"] for run in bench.written] == [1]
    assert bench.view().status.attempt == 1
    for api, kind, name in CHILDREN:
        (owner,) = bench.get(api, kind, name)["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (uid, True), (kind, name)
        assert "blockOwnerDeletion" not in owner
    before = bench.versions()
    again = bench.decide()
    assert again.fenced
    assert bench.apply(again) is None
    assert bench.versions() == before
    assert [event["reason"] for event in bench.events()].count("AttemptStarted") == 1


def test_a_stale_snapshot_creates_nothing(bench: Bench) -> None:
    bench.run()
    old, decision = bench.view(), bench.decide()
    bench.api.patch(
        API_VERSION, KIND, "walk", {"metadata": {"labels": {"a": "b"}}}, bench.namespace
    )
    with pytest.raises(ConflictError):
        bench.apply(decision, old)
    assert bench.versions() == {}
    assert "status" not in bench.stored()
    assert bench.events() == []


def test_an_unchanged_status_still_fences(bench: Bench) -> None:
    """A second operator that lost its Lease decides on the same status; it must not create."""
    bench.run()
    bench.apply(Decision(bench.decide().status))
    old = bench.view()
    decision = bench.decide()
    assert decision.status == old.status
    bench.api.patch(
        API_VERSION, KIND, "walk", {"metadata": {"labels": {"a": "b"}}}, bench.namespace
    )
    with pytest.raises(ConflictError):
        bench.apply(decision, old)
    assert bench.versions() == {}


def test_an_attempt_is_made_once_whatever_answer_is_lost(behind: Bench, proxy: Proxy) -> None:
    """Each write in turn is carried out and its answer lost; the next pass goes on."""
    behind.run(storage={"size": "1Gi"})
    for number in range(20):
        with proxy.inject(Selector(writes=True), Fault.LOSE_ANSWER, times=1, skip=number) as lost:
            for _ in range(3):
                try:
                    behind.apply(behind.decide())
                    break
                except ApiError:
                    continue
            if not lost.hits:
                break
    assert set(behind.versions()) == {f"{kind}/{name}" for _, kind, name in CHILDREN}
    assert behind.view().status.attempt == 1
    assert len(behind.api.objects("batch/v1", "Job", behind.namespace)) == 1


# --- create ------------------------------------------------------------------------------


def test_a_foreign_object_is_noted_and_named_in_the_status(bench: Bench) -> None:
    bench.run()
    bench.api.create(config_map("walk-a1") | {"data": {"mine": "1"}}, namespace=bench.namespace)
    taken = bench.apply(bench.decide())
    assert taken is not None
    assert (taken.kind, taken.name) == (ChildKind.CONFIG_MAP, "walk-a1")
    assert bench.find("batch/v1", "Job", "walk-a1") is None
    assert bench.get("v1", "ConfigMap", "walk-a1")["data"] == {"mine": "1"}

    observed = bench.observed()
    decision = reconcile(observed, datetime.now(UTC))
    bench.apply(decision, observed.run)
    (scheduled,) = [c for c in bench.stored()["status"]["conditions"] if c["type"] == "Scheduled"]
    assert scheduled["reason"] == "NameTaken"
    assert "ConfigMap walk-a1 exists and is not this run's" in scheduled["message"]

    bench.api.delete("v1", "ConfigMap", "walk-a1", bench.namespace)
    assert bench.apply(bench.decide()) is None
    assert bench.find("batch/v1", "Job", "walk-a1") is not None
    assert bench.observed().foreign == ()


def test_a_quota_that_refuses_the_job_is_a_condition_until_it_is_lifted(bench: Bench) -> None:
    bench.run()
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"count/jobs.batch": "0"}},
    }
    bench.api.create(quota, namespace=bench.namespace)
    wait_for(
        lambda: bench.get("v1", "ResourceQuota", "none").get("status", {}).get("used"),
        "counted quota",
    )
    for _ in range(2):
        observed = bench.observed()
        with pytest.raises(ForbiddenError):
            bench.apply(reconcile(observed, datetime.now(UTC)), observed.run)
    (scheduled,) = [c for c in bench.stored()["status"]["conditions"] if c["type"] == "Scheduled"]
    assert scheduled["reason"] == "QuotaExceeded"
    assert "Job walk-a1 cannot be created" in scheduled["message"]
    assert "exceeded quota: none" in scheduled["message"]
    (told,) = [event for event in bench.events() if event["reason"] == "QuotaExceeded"]
    assert (told["type"], told["message"]) == ("Warning", scheduled["message"])

    bench.api.delete("v1", "ResourceQuota", "none", bench.namespace)
    wait_for(lambda: bench.made() is not None, "a Job without a quota")
    assert bench.observed().refused is None


@pytest.mark.parametrize("code", [409, 429, 500, 503])
def test_a_refusal_by_the_server_stops_there(behind: Bench, proxy: Proxy, code: int) -> None:
    behind.run()
    with proxy.inject(Selector(resource="services"), Refuse(code), times=1):
        with pytest.raises(ApiError) as caught:
            behind.apply(behind.decide())
        assert caught.value.status == code
        assert "Job/walk-a1" not in behind.versions()
        behind.apply(behind.decide())
    assert "Job/walk-a1" in behind.versions()


# --- delete ------------------------------------------------------------------------------


def job(name: str = "walk-a1") -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "none"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"completionMode": "Indexed", "completions": 2, "parallelism": 2,
                 "template": {"spec": pod}},
    }  # fmt: skip


def test_a_job_goes_with_its_pods_and_only_this_very_one(bench: Bench) -> None:
    bench.run()
    uid = bench.api.create(job(), namespace=bench.namespace)["metadata"]["uid"]

    def pods() -> list[Object]:
        return bench.api.objects("v1", "Pod", bench.namespace)

    wait_for(lambda: len(pods()) == 2, "pods of the Job")
    bench.act(DeleteJob("walk-a1", "00000000-0000-0000-0000-000000000000"))
    assert bench.find("batch/v1", "Job", "walk-a1") is not None
    bench.act(DeleteJob("walk-a1", uid))
    wait_for(lambda: bench.find("batch/v1", "Job", "walk-a1") is None, "deleted Job")
    wait_for(lambda: not pods(), "deleted pods")
    bench.act(DeleteJob("walk-a1", uid))


def test_a_pod_is_deleted_by_its_uid_gently_or_by_force(bench: Bench) -> None:
    bench.run()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "walk"},
        "spec": {"nodeName": "nowhere", "containers": [{"name": "trainer", "image": "none"}]},
    }
    uid = bench.api.create(pod, namespace=bench.namespace)["metadata"]["uid"]
    bench.act(DeletePod("walk", "00000000-0000-0000-0000-000000000000", 0))
    assert "deletionTimestamp" not in bench.get("v1", "Pod", "walk")["metadata"]
    bench.act(DeletePod("walk", uid))
    found = bench.get("v1", "Pod", "walk")["metadata"]
    assert found["deletionGracePeriodSeconds"] == 30
    bench.act(DeletePod("walk", uid, 0))
    assert bench.find("v1", "Pod", "walk") is None
    bench.act(DeletePod("walk", uid, 0))


def test_a_child_is_deleted_where_its_controller_is_the_run(bench: Bench) -> None:
    uid = bench.run()["metadata"]["uid"]
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": "walk", "uid": uid}
    ours = config_map("ours", ownerReferences=[owner | {"controller": True}])
    for manifest in (ours, config_map("not-as-controller", ownerReferences=[owner])):
        bench.api.create(manifest, namespace=bench.namespace)
    for name in ("ours", "not-as-controller", "absent"):
        bench.act(DeleteChild(ChildKind.CONFIG_MAP, name, uid))
    assert bench.find("v1", "ConfigMap", "ours") is None
    assert bench.find("v1", "ConfigMap", "not-as-controller") is not None


def test_finalizers_of_the_progress_go_so_that_nothing_hangs(bench: Bench) -> None:
    bench.run()
    hung = config_map("walk-progress", finalizers=["evil.example/hang"])
    uid = bench.api.create(hung, namespace=bench.namespace)["metadata"]["uid"]
    bench.api.delete("v1", "ConfigMap", "walk-progress", bench.namespace)
    bench.act(StripFinalizers("walk-progress", "00000000-0000-0000-0000-000000000000"))
    assert bench.find("v1", "ConfigMap", "walk-progress") is not None
    bench.act(StripFinalizers("walk-progress", uid))
    assert bench.find("v1", "ConfigMap", "walk-progress") is None
    bench.act(StripFinalizers("walk-progress", uid))


# --- Events ------------------------------------------------------------------------------


def recorded(
    bench: Bench, act: Callable[[EventRecorder, RunView], Awaitable[None]]
) -> list[Object]:
    view = bench.view()

    async def main(cluster: Cluster) -> None:
        async with EventRecorder(cluster, "operator-0") as recorder:
            await act(recorder, view)

    connected(bench.kubeconfig, main)
    return bench.events()


def test_repeated_events_are_counted_and_made_anew_once_expired(bench: Bench) -> None:
    uid = bench.run()["metadata"]["uid"]
    began = EventRecord(EventType.NORMAL, "AttemptStarted", "attempt 1 begins")

    async def thrice(recorder: EventRecorder, view: RunView) -> None:
        for _ in range(3):
            recorder.record(view.metadata, [began])

    (event,) = recorded(bench, thrice)
    assert event["count"] == 3
    assert event["involvedObject"]["uid"] == uid
    assert event["source"]["component"] == "drivetrain-operator"

    async def expired(recorder: EventRecorder, view: RunView) -> None:
        recorder.record(view.metadata, [began])
        await asyncio.to_thread(wait_for, lambda: len(bench.events()) == 2, "the Event")
        for found in bench.events():
            bench.api.delete("v1", "Event", found["metadata"]["name"], bench.namespace)
        recorder.record(view.metadata, [began])

    (event,) = recorded(bench, expired)
    assert event["count"] == 1
