from __future__ import annotations

from datetime import timedelta

import pytest
from fake_cluster import FakeCluster
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain_api.digest import TERMINATION_LIMIT, Digest, encode
from drivetrain_api.status import ConditionType, Phase, Reason
from drivetrain_operator.reconcile.decision import DeleteJob
from drivetrain_operator.reconcile.restart import backoff_seconds


@pytest.mark.parametrize(
    ("first", "ended", "wait"),
    [
        (10, 1, 10),
        (10, 2, 20),
        (10, 3, 40),
        (10, 6, 320),
        (10, 7, 600),
        (10, 5000, 600),
        (0, 9, 0),
        (1, 10, 512),
        (1, 11, 600),
        (86_400, 1, 600),
        (10, 0, 10),
    ],
)
def test_the_back_off_doubles_to_ten_minutes(first: int, ended: int, wait: int) -> None:
    assert backoff_seconds(first, ended) == wait


@settings(deadline=None)
@given(first=st.integers(0, 86_400), ended=st.integers(0, 2**31 - 1))
def test_the_back_off_never_falls_and_never_passes_its_limit(first: int, ended: int) -> None:
    wait = backoff_seconds(first, ended)
    assert 0 <= wait <= 600
    assert backoff_seconds(first, ended + 1) >= wait


def failing(code: int, *, max_restarts: int = 3, nodes: int = 1, **how: str) -> FakeCluster:
    cluster = FakeCluster(
        restart={"maxRestarts": max_restarts, "backoffSeconds": 10}, topology={"nodes": nodes}
    )
    cluster.begin()
    fail(cluster, code, **how)
    return cluster


def fail(cluster: FakeCluster, code: int, **how: str) -> None:
    cluster.finish(cluster.live_pods[0], code, **how)
    cluster.job_controller()
    cluster.settle()


@pytest.mark.parametrize(
    ("code", "how", "reason"),
    [
        (1, {}, Reason.ATTEMPT_FAILED),
        (137, {}, Reason.ATTEMPT_FAILED),
        (75, {}, Reason.ATTEMPT_FAILED),
        (77, {}, Reason.ATTEMPT_FAILED),
        (137, {"reason": "OOMKilled"}, Reason.OOM_KILLED),
        (1, {"reason": "OOMKilled"}, Reason.OOM_KILLED),
        (75, {"reason": "OOMKilled"}, Reason.OOM_KILLED),
    ],
)
def test_a_failure_is_counted_recorded_and_backed_off(
    code: int, how: dict[str, str], reason: Reason
) -> None:
    cluster = failing(code, **how)
    status = cluster.status
    assert (status.phase, status.restarts, status.disruptions) == (Phase.RESTARTING, 1, 0)
    assert status.next_attempt_at == cluster.now + timedelta(seconds=10)
    record = status.history[-1]
    assert (record.attempt, record.reason, record.exit_code) == (1, reason, code)
    assert record.counted
    assert str(code) in record.message
    assert not status.is_true(ConditionType.RUNNING)
    assert status.attempt_running_at is None
    assert [e.reason for e in cluster.recorded][-1] == reason


def test_one_failed_pod_ends_the_attempt_as_a_whole() -> None:
    cluster = FakeCluster(topology={"nodes": 2}, restart={"backoffSeconds": 10})
    cluster.begin()
    uid = cluster.job()["metadata"]["uid"]
    cluster.finish(cluster.live_pods[1], 1)
    cluster.job_controller()
    cluster.sync()
    assert DeleteJob("walk-a1", uid) in cluster.decide().actions


def test_each_ended_attempt_doubles_the_wait() -> None:
    cluster = failing(1)
    waits = []
    for _ in range(3):
        due = cluster.status.next_attempt_at
        assert due is not None
        waits.append((due - cluster.now).total_seconds())
        cluster.clear()
        cluster.now = due
        cluster.begin()
        fail(cluster, 1)
    assert waits == [10, 20, 40]
    assert cluster.status.phase is Phase.FAILED


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_restarts_are_exactly_as_many_as_allowed(limit: int) -> None:
    cluster = failing(1, max_restarts=limit)
    for _ in range(limit):
        assert cluster.status.phase is Phase.RESTARTING
        cluster.clear()
        cluster.later(600)
        cluster.begin()
        fail(cluster, 1)
    status = cluster.status
    assert (status.phase, status.restarts, status.attempt) == (Phase.FAILED, limit, limit + 1)
    failed = status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == Reason.RESTARTS_EXHAUSTED
    assert f"after {limit} of {limit} restarts" in failed.message
    assert status.history[-1].reason == Reason.ATTEMPT_FAILED
    assert status.next_attempt_at is None
    assert not status.is_true(ConditionType.RESTARTING)


def test_the_reason_of_the_last_failure_is_told_when_restarts_are_exhausted() -> None:
    cluster = failing(137, max_restarts=0, reason="OOMKilled")
    failed = cluster.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.message.startswith("OOMKilled: pod walk-a1-0-")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("CUDA error: device lost", "CUDA error: device lost"),
        (encode(Digest(attempt=1, message="the ring tore"), TERMINATION_LIMIT), "the ring tore"),
        (encode(Digest(attempt=9, message="not ours"), TERMINATION_LIMIT), "exit code 1"),
        ('{"half": ', "exit code 1"),
        ("", "exit code 1"),
        ("a\x00b\x1b[31mc", "a b [31mc"),
    ],
)
def test_the_words_of_the_container_are_told(said: str, told: str) -> None:
    record = failing(1, message=said).status.history[-1]
    assert record.message.endswith(told)


def test_the_first_failure_is_the_culprit_and_what_the_job_stopped_is_not() -> None:
    cluster = FakeCluster(topology={"nodes": 3})
    cluster.begin()
    first, second, third = cluster.live_pods
    cluster.finish(second, 75)
    cluster.later(1)
    cluster.finish(third, 134, message="first real")
    cluster.later(1)
    cluster.finish(first, 1, message="later")
    cluster.job_controller()
    cluster.settle()
    record = cluster.status.history[-1]
    assert (record.exit_code, record.message.rsplit(": ")[-1]) == (134, "first real")


def test_a_pod_that_lost_a_rank_of_another_is_not_the_culprit_however_fast_it_was() -> None:
    cluster = FakeCluster(topology={"nodes": 2})
    cluster.begin()
    first, second = cluster.live_pods
    lost = Digest(attempt=1, message="rank 0: lost another rank", rank_lost=True)
    cluster.finish(first, 1, message=encode(lost, TERMINATION_LIMIT))
    cluster.later(1)
    cluster.finish(second, 1, message="rank 1 was killed")
    cluster.job_controller()
    cluster.settle()
    assert cluster.status.history[-1].message.endswith("rank 1 was killed")


def test_a_pod_that_lost_a_rank_is_told_of_where_no_other_is_seen() -> None:
    lost = Digest(attempt=1, message="rank 0: lost another rank", rank_lost=True)
    record = failing(1, nodes=2, message=encode(lost, TERMINATION_LIMIT)).status.history[-1]
    assert record.message.endswith("rank 0: lost another rank")


def test_a_pod_over_its_storage_limit_is_counted_and_explained() -> None:
    cluster = FakeCluster()
    cluster.begin()
    pod = cluster.live_pods[0]
    cluster.finish(pod, 75)
    words = 'Usage of EmptyDir volume "shm" exceeds the limit "1Gi".'
    pod["status"] |= {"reason": "Evicted", "message": words}
    cluster.job_controller()
    cluster.settle()
    assert (cluster.status.restarts, cluster.status.disruptions) == (1, 0)
    assert f"Evicted: {words}" in cluster.status.history[-1].message


def test_a_job_deleted_by_hand_is_a_counted_failure() -> None:
    cluster = FakeCluster()
    cluster.begin()
    del cluster.objects["Job", "walk-a1"]
    cluster.settle()
    assert cluster.status.restarts == 1
    assert cluster.status.history[-1].reason == Reason.JOB_DELETED


def test_a_job_that_is_being_deleted_is_not_waited_for() -> None:
    cluster = FakeCluster()
    cluster.begin()
    cluster.job()["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    decision = cluster.settle()
    assert cluster.status.history[-1].reason == Reason.JOB_DELETED
    assert not decision.actions


def test_the_jobs_words_stand_in_where_the_pod_is_gone() -> None:
    cluster = FakeCluster()
    cluster.begin()
    cluster.finish(cluster.live_pods[0], 75)
    cluster.job_controller()
    del cluster.objects["Pod", cluster.pods[0]["metadata"]["name"]]
    cluster.settle()
    record = cluster.status.history[-1]
    assert (record.exit_code, record.reason) == (75, Reason.ATTEMPT_FAILED)
    assert "rule at index 2" in record.message


def test_history_keeps_the_last_ten() -> None:
    cluster = FakeCluster(restart={"maxRestarts": 20, "backoffSeconds": 0})
    for _ in range(12):
        cluster.begin()
        fail(cluster, 1)
        cluster.clear()
    assert [record.attempt for record in cluster.status.history] == list(range(3, 13))
