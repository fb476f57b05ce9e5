from __future__ import annotations

import pytest
from fake_cluster import FakeCluster, set_condition

from drivetrain_api.status import ConditionType, Phase, Reason
from drivetrain_operator.reconcile.decision import DeleteJob, DeletePod


def running(nodes: int = 2) -> FakeCluster:
    cluster = FakeCluster(
        topology={"nodes": nodes},
        restart={"maxRestarts": 0, "backoffSeconds": 10},
        gracePeriodSeconds=20,
    )
    cluster.begin()
    return cluster


@pytest.mark.parametrize(
    "reason",
    ["EvictionByEvictionAPI", "PreemptionByScheduler", "DeletionByTaintManager", "DeletionByPodGC"],
)
def test_a_disruption_restarts_at_once_without_counting_but_backs_off(reason: str) -> None:
    cluster = running()
    uid = cluster.job()["metadata"]["uid"]
    cluster.disrupt(cluster.live_pods[0], reason)
    cluster.sync()
    decision = cluster.decide()
    assert DeleteJob("walk-a1", uid) in decision.actions
    cluster.settle()
    status = cluster.status
    assert (status.phase, status.restarts, status.disruptions) == (Phase.RESTARTING, 0, 1)
    assert status.disruption_seen
    assert status.next_attempt_at is not None
    assert (status.next_attempt_at - cluster.now).total_seconds() == 10
    record = status.history[-1]
    assert (record.reason, record.counted) == (Reason.DISRUPTED, False)
    assert reason in record.message


def test_disruptions_double_the_wait_like_failures() -> None:
    cluster = running(1)
    waits = []
    for _ in range(3):
        cluster.disrupt(cluster.live_pods[0])
        cluster.settle()
        due = cluster.status.next_attempt_at
        assert due is not None
        waits.append((due - cluster.now).total_seconds())
        cluster.clear()
        cluster.now = due
        cluster.begin()
    assert waits == [10, 20, 40]
    assert (cluster.status.restarts, cluster.status.disruptions) == (0, 3)


def test_a_job_about_to_be_complete_is_not_disrupted_any_more() -> None:
    cluster = running()
    set_condition(cluster.job(), "SuccessCriteriaMet", "CompletionsReached")
    set_condition(cluster.live_pods[0], "DisruptionTarget", "EvictionByEvictionAPI")
    cluster.settle()
    assert cluster.status.phase is Phase.RUNNING


def test_the_code_of_a_disrupted_pod_is_not_its_own() -> None:
    cluster = running(1)
    pod = cluster.live_pods[0]
    set_condition(pod, "DisruptionTarget", "PreemptionByScheduler")
    cluster.finish(pod, 3)
    cluster.job_controller()
    cluster.settle()
    assert (cluster.status.phase, cluster.status.disruptions) == (Phase.RESTARTING, 1)


def test_the_jobs_message_is_all_that_lasts_of_an_evicted_pod() -> None:
    cluster = running(1)
    cluster.disrupt(cluster.live_pods[0])
    cluster.reap()
    assert not cluster.pods
    cluster.settle()
    assert (cluster.status.restarts, cluster.status.disruptions) == (0, 1)
    assert "rule at index 0" in cluster.status.history[-1].message


def test_a_disruption_that_was_seen_outweighs_the_peers_exit_code() -> None:
    cluster = running()
    evicted, peer = cluster.live_pods
    set_condition(evicted, "DisruptionTarget", "PreemptionByScheduler")
    cluster.finish(peer, 1)
    cluster.job_controller()
    cluster.settle()
    assert (cluster.status.restarts, cluster.status.disruptions) == (0, 1)


def test_a_disruption_is_latched_though_the_decision_was_not_applied() -> None:
    cluster = running()
    evicted, peer = cluster.live_pods
    cluster.run["status"]["disruptionSeen"] = True
    cluster.objects.pop(("Pod", evicted["metadata"]["name"]))
    cluster.finish(peer, 1)
    cluster.job_controller()
    cluster.settle()
    assert (cluster.status.restarts, cluster.status.disruptions) == (0, 1)


@pytest.mark.parametrize("code", [2, 3])
def test_a_pod_that_failed_for_good_outweighs_another_ones_disruption(code: int) -> None:
    cluster = running()
    broken, evicted = cluster.live_pods
    cluster.finish(broken, code)
    cluster.disrupt(evicted)
    cluster.job_controller()
    cluster.settle()
    assert cluster.status.phase is Phase.FAILED


def test_a_disrupted_pod_that_is_done_harms_nothing() -> None:
    cluster = running()
    done = cluster.live_pods[0]
    cluster.finish(done, 0)
    set_condition(done, "DisruptionTarget", "EvictionByEvictionAPI")
    cluster.settle()
    assert cluster.status.phase is Phase.RUNNING
    assert cluster.status.disruption_seen is None


def test_a_lost_node_ends_the_attempt_and_its_pods_are_forced_once_the_job_is_gone() -> None:
    """No FailureTarget ever comes, and no DisruptionTarget where nobody taints."""
    cluster = running()
    pod = cluster.live_pods[0]
    cluster.lost_nodes.add("node-1")
    cluster.terminate(pod)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]

    cluster.later(20 + 29)
    assert cluster.settle().wake_after == 1.0
    assert cluster.status.phase is Phase.RUNNING
    cluster.later(1)
    cluster.sync()
    decision = cluster.decide()
    assert [type(action) for action in decision.actions] == [DeleteJob]
    cluster.apply(decision)
    assert cluster.status.history[-1].reason == Reason.NODE_LOST
    assert (cluster.status.restarts, cluster.status.disruptions) == (0, 1)

    cluster.sync()
    assert DeletePod(name, uid, grace_seconds=0) in cluster.decide().actions
    cluster.settle()
    assert name not in [p["metadata"]["name"] for p in cluster.pods]


def test_a_forced_pod_that_a_finalizer_holds_is_not_forced_again() -> None:
    cluster = running(1)
    cluster.lost_nodes.add("node-1")
    cluster.disrupt(cluster.live_pods[0])
    cluster.settle()
    cluster.later(60)
    pod = cluster.pods[0]
    pod["metadata"]["deletionGracePeriodSeconds"] = 0
    cluster.sync()
    assert not [a for a in cluster.decide().actions if isinstance(a, DeletePod)]
    assert cluster.status.attempt == 1


def test_what_is_left_of_a_pod_that_is_over_ends_nothing_but_goes_with_the_job() -> None:
    cluster = running()
    cluster.lost_nodes.add("node-1")
    done = cluster.live_pods[0]
    name = done["metadata"]["name"]
    cluster.terminate(done)
    cluster.finish(done, 0)
    cluster.later(500)
    cluster.settle()
    assert cluster.status.phase is Phase.RUNNING
    assert name in [p["metadata"]["name"] for p in cluster.pods]
    cluster.edit(suspend=True)
    cluster.settle()
    assert name not in [p["metadata"]["name"] for p in cluster.pods]


def test_the_next_attempt_runs_after_a_lost_node() -> None:
    cluster = running()
    cluster.lost_nodes.add("node-1")
    for pod in cluster.live_pods:
        cluster.disrupt(pod, "DeletionByTaintManager")
    cluster.settle()
    cluster.later(51)
    cluster.settle()
    cluster.job_controller()
    for pod in cluster.live_pods:
        cluster.start(pod, "node-2")
    cluster.settle()
    assert (cluster.status.attempt, cluster.status.phase) == (2, Phase.RUNNING)
    assert cluster.status.is_true(ConditionType.SCHEDULED)
