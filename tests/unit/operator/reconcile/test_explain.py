from __future__ import annotations

from typing import Any

import pytest
from fake_cluster import FakeCluster

from drivetrain_api.status import Condition, ConditionType, Phase, Reason

UNBOUND = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
QUOTA = (
    'Error creating: pods "walk-a1-0-x" is forbidden: exceeded quota: lab, requested: '
    "cpu=8, used: cpu=0, limited: cpu=4"
)
PSA = (
    'Error creating: pods "walk-a1-0-x" is forbidden: violates PodSecurity "restricted:latest": '
    "host namespaces (hostPID=true)"
)
ACCOUNT = (
    'Error creating: pods "walk-a1-0-" is forbidden: error looking up service account '
    'lab/walk-trainer: serviceaccount "walk-trainer" not found'
)


def begun(**spec: Any) -> FakeCluster:
    cluster = FakeCluster(**spec)
    cluster.begin(running=False)
    return cluster


def told(cluster: FakeCluster, type_: ConditionType) -> Condition:
    found = cluster.status.condition(type_)
    assert found is not None
    return found


def unscheduled(cluster: FakeCluster, words: str) -> None:
    """As the scheduler writes it: a condition that is False, with its reason and words."""
    (pod,) = cluster.live_pods
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    ]
    cluster.settle()


def waits(cluster: FakeCluster, container: dict[str, Any], *, init: bool = False) -> None:
    (pod,) = cluster.live_pods
    pod["spec"]["nodeName"] = "node-1"
    pod["status"]["initContainerStatuses" if init else "containerStatuses"] = [container]
    cluster.settle()


def waiting(name: str, reason: str, message: str) -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def test_a_pod_without_a_node_is_told_in_the_schedulers_words() -> None:
    cluster = begun()
    unscheduled(cluster, "0/3 nodes are available: 3 Insufficient cpu.")
    scheduled = told(cluster, ConditionType.SCHEDULED)
    assert scheduled.reason == Reason.UNSCHEDULABLE
    assert scheduled.message.endswith("0/3 nodes are available: 3 Insufficient cpu.")
    assert cluster.status.message == scheduled.message


@pytest.mark.parametrize(
    ("storage", "claim"),
    [({"size": "1Gi"}, "walk-storage"), ({"claimName": "shared"}, "shared")],
)
def test_a_claim_that_does_not_bind_is_named(storage: dict[str, Any], claim: str) -> None:
    cluster = begun(storage=storage)
    unscheduled(cluster, UNBOUND)
    scheduled = told(cluster, ConditionType.SCHEDULED)
    assert scheduled.reason == Reason.VOLUME_PENDING
    assert f"waits for its volume (claim {claim}): {UNBOUND}" in scheduled.message


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (QUOTA, Reason.QUOTA_EXCEEDED),
        (PSA, Reason.POD_SECURITY),
        (ACCOUNT, Reason.POD_REFUSED),
    ],
)
def test_a_pod_that_was_refused_is_told_by_the_jobs_events(words: str, reason: Reason) -> None:
    cluster = begun()
    job = cluster.job()
    for pod in cluster.pods:
        del cluster.objects["Pod", pod["metadata"]["name"]]
    cluster.job_events = [
        {
            "involvedObject": {"uid": job["metadata"]["uid"]},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": words,
            "firstTimestamp": None,
            "lastTimestamp": None,
            "eventTime": "2026-03-01T12:00:00.123456Z",
            "series": {"count": 4, "lastObservedTime": "2026-03-01T12:00:09.654321Z"},
        }
    ]
    cluster.settle()
    scheduled = told(cluster, ConditionType.SCHEDULED)
    assert (scheduled.reason, scheduled.message) == (reason, f"FailedCreate: {words}")
    assert [event.reason for event in cluster.recorded].count(reason) == 1


def test_a_failing_pull_is_one_state_however_the_kubelet_names_it() -> None:
    cluster = begun()
    error = 'rpc error: code = NotFound desc = failed to pull "lab/x:1": not found'
    waits(cluster, waiting("trainer", "ErrImagePull", error))
    running = told(cluster, ConditionType.RUNNING)
    assert running.reason == Reason.IMAGE_PULL
    assert running.message.endswith(f"container trainer: ImagePullBackOff: {error}")
    version = cluster.run["metadata"]["resourceVersion"]
    (pod,) = cluster.live_pods
    backing = f'Back-off pulling image "lab/x:1": ErrImagePull: {error}'
    pod["status"]["containerStatuses"] = [waiting("trainer", "ImagePullBackOff", backing)]
    cluster.settle()
    assert cluster.run["metadata"]["resourceVersion"] == version
    assert [event.reason for event in cluster.recorded].count(Reason.IMAGE_PULL) == 1


@pytest.mark.parametrize(
    ("reason", "message", "told_as"),
    [
        ("CrashLoopBackOff", "back-off 10s restarting failed container", Reason.CRASH_LOOP),
        ("CreateContainerConfigError", 'secret "wandb" not found', Reason.CONTAINER_WAITING),
        ("ImagePullBackOff", "", Reason.IMAGE_PULL),
    ],
)
def test_an_init_container_that_hinders_is_named(
    reason: str, message: str, told_as: Reason
) -> None:
    cluster = begun()
    waits(cluster, waiting("fetch", reason, message), init=True)
    running = told(cluster, ConditionType.RUNNING)
    assert running.reason == told_as
    assert f"init container fetch: {reason}" in running.message
    assert message in running.message


def test_what_was_cured_is_no_longer_told() -> None:
    cluster = begun()
    unscheduled(cluster, UNBOUND)
    (pod,) = cluster.live_pods
    cluster.start(pod)
    cluster.settle()
    assert cluster.status.phase is Phase.RUNNING
    assert told(cluster, ConditionType.SCHEDULED).reason == Reason.PODS_SCHEDULED
    assert cluster.status.message == "attempt 1: 1 of 1 pods running"


def test_a_pod_over_its_emptydir_limit_is_the_cause_not_those_that_its_job_stopped() -> None:
    cluster = FakeCluster(topology={"nodes": 2}, restart={"maxRestarts": 0})
    cluster.begin()
    evicted, stopped = cluster.live_pods
    cluster.finish(stopped, 75)
    cluster.later(3)
    cluster.finish(evicted, 75)
    words = 'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi".'
    evicted["status"] |= {"reason": "Evicted", "message": words}
    cluster.job_controller()
    cluster.settle()
    record = cluster.status.history[-1]
    assert words in record.message
    assert record.counted
