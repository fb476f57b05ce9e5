from __future__ import annotations

import pytest
from fake_cluster import FakeCluster, set_condition

from drivetrain_api.status import Condition, ConditionStatus, ConditionType, Phase, Reason


def condition(cluster: FakeCluster, type_: ConditionType) -> Condition:
    found = cluster.status.condition(type_)
    assert found is not None
    return found


def test_scheduled_then_running_each_when_all_pods_are() -> None:
    cluster = FakeCluster(topology={"nodes": 2})
    cluster.begin(running=False)
    scheduled = condition(cluster, ConditionType.SCHEDULED)
    assert (scheduled.status, scheduled.message) == (ConditionStatus.FALSE, "0 of 2 pods scheduled")
    assert cluster.status.condition(ConditionType.RUNNING) is None

    first, second = cluster.live_pods
    cluster.start(first)
    cluster.settle()
    assert condition(cluster, ConditionType.SCHEDULED).message == "1 of 2 pods scheduled"

    second["spec"]["nodeName"] = "node-2"
    cluster.settle()
    assert cluster.status.is_true(ConditionType.SCHEDULED)
    waiting = condition(cluster, ConditionType.RUNNING)
    assert (waiting.status, waiting.message) == (ConditionStatus.FALSE, "1 of 2 pods running")
    assert cluster.status.phase is Phase.PENDING

    cluster.later(7)
    cluster.start(second)
    cluster.settle()
    assert cluster.status.phase is Phase.RUNNING
    assert cluster.status.attempt_running_at == cluster.now
    assert condition(cluster, ConditionType.RUNNING).last_transition_time == cluster.now


def test_a_pod_that_is_being_deleted_does_not_count_as_started() -> None:
    cluster = FakeCluster(topology={"nodes": 2})
    cluster.begin(running=False)
    first, second = cluster.live_pods
    cluster.start(first)
    cluster.terminate(first)
    cluster.start(second)
    cluster.settle()
    assert cluster.status.phase is Phase.PENDING


def test_a_pod_that_was_done_before_the_others_ran_counts() -> None:
    cluster = FakeCluster(topology={"nodes": 2})
    cluster.begin(running=False)
    first, second = cluster.live_pods
    cluster.finish(first, 0)
    first["spec"]["nodeName"] = "node-1"
    cluster.start(second)
    cluster.settle()
    assert cluster.status.phase is Phase.RUNNING


def test_running_lasts_while_pods_finish_one_by_one() -> None:
    cluster = FakeCluster(topology={"nodes": 2})
    cluster.begin()
    version = cluster.run["metadata"]["resourceVersion"]
    cluster.finish(cluster.live_pods[0], 0)
    cluster.settle()
    assert cluster.status.phase is Phase.RUNNING
    assert cluster.run["metadata"]["resourceVersion"] == version


def test_the_wait_in_a_queue_is_told_and_admission_goes_on_with_the_attempt() -> None:
    cluster = FakeCluster(queueName="lab-queue")
    cluster.begin()
    scheduled = condition(cluster, ConditionType.SCHEDULED)
    assert (scheduled.reason, scheduled.message) == (Reason.QUEUED, "waits in LocalQueue lab-queue")
    assert (cluster.status.phase, cluster.status.attempt) == (Phase.PENDING, 1)
    cluster.job()["spec"]["suspend"] = False
    cluster.job_controller()
    for pod in cluster.live_pods:
        cluster.start(pod)
    cluster.settle()
    assert (cluster.status.phase, cluster.status.attempt) == (Phase.RUNNING, 1)


def test_an_eviction_by_kueue_is_a_segment_of_the_same_attempt() -> None:
    cluster = FakeCluster(queueName="lab-queue", restart={"stallSeconds": 500})
    cluster.begin()
    job = cluster.job()
    job["spec"]["suspend"] = False
    cluster.job_controller()
    for pod in cluster.live_pods:
        cluster.start(pod)
    cluster.settle()
    cluster.later(100)
    job["spec"]["suspend"] = True
    cluster.job_controller()
    decision = cluster.settle()
    assert not decision.actions
    status = cluster.status
    assert (status.phase, status.active_seconds) == (Phase.PENDING, 100)
    assert status.attempt_running_at is None
    assert condition(cluster, ConditionType.RUNNING).reason == Reason.QUEUED
    cluster.later(10_000)
    cluster.reap()
    cluster.settle()
    assert not cluster.pods
    job["spec"]["suspend"] = False
    cluster.job_controller()
    for pod in cluster.live_pods:
        cluster.start(pod)
    cluster.settle()
    status = cluster.status
    assert (status.phase, status.attempt, status.restarts) == (Phase.RUNNING, 1, 0)
    assert (status.active_seconds, status.disruptions) == (100, 0)
    assert status.attempt_running_at == cluster.now
    assert cluster.settle().wake_after == 500.0


@pytest.mark.parametrize("queue", ["lab-queue", None])
def test_a_suspended_job_that_sees_its_pods_leave_counts_no_failure(queue: str | None) -> None:
    """Its controller may see the pod's end before the pod is gone; the rules still apply."""
    cluster = FakeCluster(restart={"maxRestarts": 0}, **({"queueName": queue} if queue else {}))
    cluster.begin()
    job = cluster.job()
    job["spec"]["suspend"] = False
    cluster.job_controller()
    for pod in cluster.live_pods:
        cluster.start(pod)
    cluster.settle()
    job["spec"]["suspend"] = True
    cluster.job_controller()
    cluster.finish(cluster.pods[0], 75)
    cluster.job_controller()
    cluster.settle()
    status = cluster.status
    assert (status.restarts, status.finished_at) == (0, None)
    if queue:
        assert (status.phase, status.attempt) == (Phase.PENDING, 1), "the Job waits for its turn"
    else:
        assert (status.phase, status.disruptions) == (Phase.RESTARTING, 1)
        assert "the Job was suspended" in status.history[-1].message


def test_conditions_that_somebody_took_away_are_set_again() -> None:
    cluster = FakeCluster(topology={"nodes": 2})
    cluster.begin()
    since = cluster.status.attempt_running_at
    cluster.later(60)
    cluster.run["status"]["conditions"] = []
    cluster.settle()
    assert cluster.status.phase is Phase.RUNNING
    assert cluster.status.is_true(ConditionType.SCHEDULED)
    assert cluster.status.is_true(ConditionType.ACCEPTED)
    assert cluster.status.attempt_running_at == since, "the segment is no other one"


def test_a_segment_without_its_condition_waits_for_no_pods() -> None:
    """A pod of it is about to end: what becomes of it is not for this rule to say."""
    cluster = FakeCluster(topology={"nodes": 2})
    cluster.begin()
    cluster.terminate(cluster.live_pods[0])
    cluster.run["status"]["conditions"] = []
    cluster.settle()
    assert cluster.status.condition(ConditionType.SCHEDULED) is None


def test_a_disruption_in_one_segment_does_not_explain_a_failure_in_the_next() -> None:
    cluster = FakeCluster(queueName="lab-queue")
    cluster.begin()
    job = cluster.job()
    job["spec"]["suspend"] = False
    cluster.job_controller()
    cluster.run["status"]["disruptionSeen"] = True
    job["spec"]["suspend"] = True
    cluster.settle()
    assert cluster.status.disruption_seen is None
    set_condition(job, "Suspended", "JobSuspended")
    cluster.settle()
    assert cluster.status.attempt == 1


def test_a_job_suspended_by_hand_without_a_queue_is_told() -> None:
    cluster = FakeCluster()
    cluster.begin()
    cluster.job()["spec"]["suspend"] = True
    cluster.settle()
    assert condition(cluster, ConditionType.SCHEDULED).message == "the Job is suspended"
    assert cluster.status.restarts == 0
