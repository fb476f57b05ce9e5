from __future__ import annotations

from typing import Any

import pytest
from fake_cluster import FakeCluster, set_condition

from drivetrain_api.status import ConditionType, Phase, Reason
from drivetrain_operator.reconcile.decision import Decision, DeleteJob


def pending(**spec: Any) -> FakeCluster:
    cluster = FakeCluster(deadlines={"pendingSeconds": 100}, **spec)
    cluster.begin(running=False)
    return cluster


def failed_message(cluster: FakeCluster) -> str:
    failed = cluster.status.condition(ConditionType.FAILED)
    assert failed is not None
    return failed.message


def container(name: str, reason: str, message: str, *, init: bool = False) -> dict[str, Any]:
    key = "initContainerStatuses" if init else "containerStatuses"
    return {key: [{"name": name, "state": {"waiting": {"reason": reason, "message": message}}}]}


UNSCHEDULABLE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
REASONS = [
    (
        {
            "conditions": [
                {"type": "PodScheduled", "status": "False", "message": UNSCHEDULABLE},
            ]
        },
        f"is not scheduled: {UNSCHEDULABLE}",
    ),
    (
        container("trainer", "ImagePullBackOff", 'Back-off pulling image "x:1"'),
        'container trainer: ImagePullBackOff: Back-off pulling image "x:1"',
    ),
    (
        container("fetch", "CreateContainerConfigError", 'secret "s" not found', init=True),
        'init container fetch: CreateContainerConfigError: secret "s" not found',
    ),
    (container("trainer", "ContainerCreating", ""), "nothing is known to hinder it"),
]


@pytest.mark.parametrize(("status", "words"), REASONS)
def test_the_pending_deadline_fails_the_run_with_the_real_reason(
    status: dict[str, Any], words: str
) -> None:
    cluster = pending()
    cluster.pods[0]["status"] |= status
    cluster.later(99)
    assert cluster.settle().wake_after == 1.0
    assert cluster.status.phase is Phase.PENDING
    cluster.later(1)
    uid = cluster.job()["metadata"]["uid"]
    cluster.sync()
    assert DeleteJob("walk-a1", uid) in cluster.decide().actions
    cluster.settle()
    assert cluster.status.phase is Phase.FAILED
    assert cluster.status.history[-1].reason == Reason.PENDING_DEADLINE
    assert "attempt 1 is not running after 100 s: " in failed_message(cluster)
    assert words in failed_message(cluster)


@pytest.mark.parametrize(
    "words",
    [
        'pods "walk-a1-0" is forbidden: exceeded quota: gpus',
        'pods "walk-a1-0" is forbidden: violates PodSecurity "restricted:latest"',
        'error looking up service account lab/walk-trainer: "walk-trainer" not found',
    ],
)
def test_what_only_the_jobs_events_tell_is_told(words: str) -> None:
    cluster = FakeCluster(deadlines={"pendingSeconds": 100})
    cluster.settle()
    uid = cluster.job()["metadata"]["uid"]
    for message, at in ((words, "12:00:20"), ("older", "12:00:10")):
        cluster.job_events.append(
            {
                "involvedObject": {"uid": uid},
                "reason": "FailedCreate",
                "message": message,
                "lastTimestamp": f"2026-03-01T{at}Z",
            }
        )
    cluster.job_events.append(
        {
            "involvedObject": {"uid": "another"},
            "reason": "FailedCreate",
            "message": "not ours",
            "lastTimestamp": "2026-03-01T12:00:59Z",
        }
    )
    cluster.settle()
    scheduled = cluster.status.condition(ConditionType.SCHEDULED)
    assert scheduled is not None
    assert scheduled.message == f"FailedCreate: {words}"
    cluster.later(100)
    cluster.settle()
    assert words in failed_message(cluster)


def test_an_event_of_a_pod_that_came_after_all_is_not_told_any_more() -> None:
    cluster = pending()
    uid = cluster.job()["metadata"]["uid"]
    cluster.job_events.append(
        {"involvedObject": {"uid": uid}, "reason": "FailedCreate", "message": "quota"}
    )
    cluster.settle()
    scheduled = cluster.status.condition(ConditionType.SCHEDULED)
    assert scheduled is not None
    assert scheduled.message == "0 of 1 pods scheduled"


def test_a_job_that_cannot_be_created_at_all_is_pending_too() -> None:
    cluster = FakeCluster(deadlines={"pendingSeconds": 100})
    cluster.apply(Decision(cluster.decide().status))
    cluster.later(100)
    cluster.settle()
    assert cluster.status.phase is Phase.FAILED
    assert cluster.status.history[-1].attempt == 1


def test_a_running_attempt_is_not_pending_even_once_a_pod_is_done() -> None:
    cluster = pending(topology={"nodes": 2})
    for pod in cluster.live_pods:
        cluster.start(pod)
    cluster.settle()
    cluster.finish(cluster.live_pods[0], 0)
    cluster.later(500)
    cluster.settle()
    assert cluster.status.phase is Phase.RUNNING


def test_each_attempt_has_a_pending_deadline_of_its_own() -> None:
    cluster = pending(restart={"backoffSeconds": 500})
    for pod in cluster.live_pods:
        cluster.start(pod)
    cluster.settle()
    cluster.finish(cluster.live_pods[0], 1)
    cluster.job_controller()
    cluster.settle()
    cluster.clear()
    cluster.later(500)
    cluster.begin(running=False)
    assert (cluster.status.attempt, cluster.status.phase) == (2, Phase.PENDING)
    assert cluster.settle().wake_after == 100.0


def active(seconds: int = 1000) -> FakeCluster:
    cluster = FakeCluster(
        deadlines={"activeSeconds": seconds},
        restart={"backoffSeconds": 0, "stallSeconds": 86_400, "maxRestarts": 5},
    )
    cluster.begin()
    return cluster


def test_the_active_deadline_ends_a_running_attempt() -> None:
    cluster = active()
    cluster.later(999)
    assert cluster.settle().wake_after == 1.0
    cluster.later(1)
    cluster.settle()
    assert cluster.status.phase is Phase.FAILED
    assert not cluster.jobs
    failed = cluster.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == Reason.ACTIVE_DEADLINE
    assert "1000 s of 1000 s" in failed.message
    assert cluster.status.active_seconds == 1000


def test_the_active_deadline_counts_all_attempts_and_no_waiting() -> None:
    cluster = active()
    for _ in range(2):
        cluster.later(400)
        cluster.finish(cluster.live_pods[0], 1)
        cluster.job_controller()
        cluster.settle()
        cluster.later(5000)
        cluster.clear()
        cluster.begin()
    assert (cluster.status.active_seconds, cluster.status.attempt) == (800, 3)
    assert cluster.settle().wake_after == 200.0
    cluster.later(200)
    cluster.settle()
    assert cluster.status.phase is Phase.FAILED


def test_no_further_attempt_begins_once_the_active_time_is_used_up() -> None:
    cluster = active(300)
    cluster.later(300)
    cluster.finish(cluster.live_pods[0], 1)
    cluster.job_controller()
    cluster.settle()
    status = cluster.status
    assert (status.phase, status.attempt) == (Phase.FAILED, 1)
    assert [record.reason for record in status.history] == [Reason.ATTEMPT_FAILED]
    restarting = status.condition(ConditionType.RESTARTING)
    assert restarting is not None
    assert restarting.reason == Reason.ACTIVE_DEADLINE


def test_a_job_about_to_be_complete_meets_no_deadline() -> None:
    cluster = active()
    for pod in cluster.live_pods:
        cluster.finish(pod, 0)
    cluster.job_controller()
    cluster.later(5000)
    cluster.settle()
    cluster.job_controller()
    cluster.settle()
    assert cluster.status.phase is Phase.COMPLETE


def test_waiting_in_a_queue_meets_no_deadline_and_admission_starts_it_anew() -> None:
    cluster = pending(queueName="lab")
    assert not cluster.pods
    cluster.later(50_000)
    assert cluster.settle().wake_after is None
    assert cluster.status.phase is Phase.PENDING
    cluster.job()["spec"]["suspend"] = False
    assert cluster.settle().wake_after is None  # its controller has not started it yet
    cluster.job_controller()
    assert cluster.settle().wake_after == 100.0
    cluster.later(100)
    cluster.settle()
    assert cluster.status.phase is Phase.FAILED


def test_a_job_whose_resumption_was_not_acted_on_yet_is_still_held() -> None:
    cluster = pending(queueName="lab")
    job = cluster.job()
    job["spec"]["suspend"] = False
    job["status"]["startTime"] = "2026-03-01T09:00:00Z"
    set_condition(job, "Suspended", "JobSuspended")
    cluster.settle()
    assert cluster.status.phase is Phase.PENDING
