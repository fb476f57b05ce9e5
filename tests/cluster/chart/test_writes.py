"""Every write of the operator, with the rights that the chart gives it and no others."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.chart import RELEASE
from tests.support.kubernetes.api import Api, Object, wait_for
from tests.support.kubernetes.connection import connected
from tests.support.kubernetes.control_plane import ControlPlane

from drivetrain_operator.cluster.apply import Applier
from drivetrain_operator.cluster.client import Cluster
from drivetrain_operator.cluster.dry_run import JobDryRun
from drivetrain_operator.cluster.events import EventRecorder
from drivetrain_operator.cluster.lease import LeaderElection
from drivetrain_operator.cluster.store import Store
from drivetrain_operator.manifests.children import children
from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.manifests.settings import Settings
from drivetrain_operator.reconcile.decision import (
    Action,
    Decision,
    DeleteChild,
    DeleteJob,
    EventRecord,
    EventType,
    StripFinalizers,
)
from drivetrain_operator.reconcile.engine import reconcile
from drivetrain_operator.reconcile.snapshot import Observed, RunView

pytestmark = pytest.mark.cluster

RUN = "drivetrain.dev/v1alpha1", "TrainingRun"


@pytest.fixture
def operators(plane: ControlPlane, installed: str, tmp_path: Path) -> Path:
    """A kubeconfig of the operator's account, with its own namespace."""
    token = plane.account_token(installed, RELEASE)
    return plane.write_kubeconfig(tmp_path / "operator", token=token, namespace=installed)


def view(api: Api, namespace: str) -> RunView:
    return RunView.from_object(api.get(*RUN, "walk", namespace))


def removals(api: Api, seen: RunView, namespace: str) -> tuple[Action, ...]:
    """Of everything that the first attempt was made of, the claim apart."""

    def uid(group: str, kind: str, name: str) -> str:
        return str(api.get(group, kind, name, namespace)["metadata"]["uid"])

    assert seen.spec is not None
    made = children(seen.with_spec(seen.spec), 1)
    return (
        DeleteJob("walk-a1", uid("batch/v1", "Job", "walk-a1")),
        StripFinalizers("walk-progress", uid("v1", "ConfigMap", "walk-progress")),
        *(
            DeleteChild(child.kind, child.name, seen.metadata.uid)
            for child in made
            if child.kind not in (ChildKind.JOB, ChildKind.CLAIM)
        ),
    )


def test_an_attempt_is_made_twice_told_of_and_taken_away(
    api: Api, operators: Path, namespace: str
) -> None:
    run: Object = {
        "apiVersion": RUN[0],
        "kind": RUN[1],
        "metadata": {"name": "walk"},
        "spec": {
            "algo": {"name": "sac"},
            "task": {"name": "hopper"},
            "storage": {"size": "1Gi"},
        },
    }
    api.create(run, namespace=namespace)
    written: list[Object] = []

    async def act(cluster: Cluster) -> None:
        async with EventRecorder(cluster, "operator-0") as recorder:
            applier = Applier(cluster, Store(), recorder)
            assert await JobDryRun(cluster).violations(view(api, namespace), Settings()) == ()
            for _ in range(2):
                seen = view(api, namespace)
                decision = reconcile(Observed(seen), datetime.now(UTC))
                assert decision.fenced
                assert await applier.apply(seen, decision, written.append) is None
            seen = view(api, namespace)
            event = EventRecord(EventType.NORMAL, "Told", "twice")
            gone = removals(api, seen, namespace)
            await applier.apply(seen, Decision(seen.status, gone, (event, event)), written.append)

    connected(operators, act)
    for kind in ("ConfigMap", "Service", "ServiceAccount"):
        names = [found["metadata"]["name"] for found in api.objects("v1", kind, namespace)]
        assert not [name for name in names if name.startswith("walk")], kind
    told = api.objects("v1", "Event", namespace, fieldSelector="reason=Told")
    assert [event["count"] for event in told] == [2]


def test_a_lease_is_taken_renewed_and_freed(api: Api, operators: Path, installed: str) -> None:
    def spec() -> Object:
        found: Object = api.get("coordination.k8s.io/v1", "Lease", RELEASE, installed)["spec"]
        return found

    async def act(cluster: Cluster) -> None:
        lease = LeaderElection(cluster, RELEASE, installed, "operator-0", retry_s=0.1)
        await lease.acquire()
        first = spec()["renewTime"]
        await asyncio.to_thread(wait_for, lambda: spec()["renewTime"] != first, "renewal")
        assert lease.held
        await lease.release()

    connected(operators, act)
    assert spec()["holderIdentity"] == ""
