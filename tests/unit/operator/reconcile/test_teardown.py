from __future__ import annotations

import copy

import pytest
from fake_cluster import Answer, FakeCluster, WriteError

from drivetrain_api.status import Phase
from drivetrain_operator.reconcile.decision import (
    DeleteChild,
    DeleteJob,
    DeletePod,
    StripFinalizers,
)


def deadline_failed() -> FakeCluster:
    cluster = FakeCluster(
        deadlines={"activeSeconds": 10}, topology={"nodes": 2}, gracePeriodSeconds=20
    )
    cluster.begin()
    cluster.later(10)
    return cluster


def test_a_deletion_that_failed_is_asked_for_again_in_a_terminal_state() -> None:
    cluster = deadline_failed()
    for answers in ([Answer.OK, Answer.LOST], [Answer.LOST], [Answer.LOST]):
        cluster.sync()
        with pytest.raises(WriteError):
            cluster.apply(cluster.decide(), iter(answers))
        assert cluster.status.phase is Phase.FAILED
        assert cluster.jobs
    cluster.settle()
    assert not cluster.jobs


def test_a_lost_node_is_forced_in_a_terminal_state_too() -> None:
    cluster = deadline_failed()
    cluster.lost_nodes.add("node-1")
    cluster.settle()
    cluster.garbage_collector()
    assert cluster.settle().wake_after == 50.0
    cluster.later(50)
    cluster.sync()
    decision = cluster.decide()
    assert [a.grace_seconds for a in decision.actions if isinstance(a, DeletePod)] == [0, 0]
    cluster.settle()
    assert not cluster.pods


def test_a_failed_job_and_its_pods_are_kept_for_their_logs() -> None:
    cluster = FakeCluster(restart={"maxRestarts": 0})
    cluster.begin()
    cluster.finish(cluster.live_pods[0], 1)
    for _ in range(3):
        cluster.job_controller()
        assert not cluster.settle().actions
    assert cluster.status.phase is Phase.FAILED
    assert (len(cluster.jobs), len(cluster.pods)) == (1, 1)


def test_a_failing_job_whose_pod_hangs_is_taken_away() -> None:
    cluster = FakeCluster(restart={"maxRestarts": 0}, topology={"nodes": 2}, gracePeriodSeconds=20)
    cluster.begin()
    failed, hanging = cluster.live_pods
    hanging["spec"]["nodeName"] = "node-2"
    cluster.lost_nodes.add("node-2")
    cluster.finish(failed, 1)
    cluster.job_controller()
    cluster.job_controller()
    assert not cluster.settle().actions
    cluster.later(50)
    cluster.settle()
    assert not cluster.jobs
    assert hanging["metadata"]["name"] not in [p["metadata"]["name"] for p in cluster.pods]


def test_service_and_config_map_of_an_ended_attempt_go_with_its_last_pod() -> None:
    cluster = FakeCluster(restart={"backoffSeconds": 600})
    cluster.begin()
    cluster.finish(cluster.live_pods[0], 1)
    cluster.job_controller()
    cluster.settle()
    assert ("Service", "walk-a1") not in cluster.objects
    assert ("ConfigMap", "walk-a1") not in cluster.objects
    assert ("ConfigMap", "walk-progress") in cluster.objects
    assert ("ServiceAccount", "walk-trainer") in cluster.objects


def test_they_stay_while_a_pod_of_the_attempt_is_there() -> None:
    cluster = FakeCluster(topology={"nodes": 2})
    cluster.begin()
    cluster.finish(cluster.live_pods[0], 1)
    cluster.job_controller()
    cluster.settle()
    assert cluster.live_pods
    assert ("Service", "walk-a1") in cluster.objects


def test_a_service_whose_deletion_failed_is_not_forgotten() -> None:
    """Services are not watched: the ConfigMap, which goes after it, stands for both."""
    cluster = FakeCluster(restart={"backoffSeconds": 600})
    cluster.begin()
    cluster.finish(cluster.live_pods[0], 1)
    cluster.job_controller()
    cluster.step()
    cluster.sync()
    with pytest.raises(WriteError):
        cluster.apply(cluster.decide(), iter([Answer.LOST]))
    cluster.sync()
    kinds = [a.kind.value for a in cluster.decide().actions if isinstance(a, DeleteChild)]
    assert kinds == ["Service", "ConfigMap"]


def test_a_job_of_an_attempt_that_is_not_wanted_goes_whatever_its_number() -> None:
    cluster = FakeCluster(restart={"backoffSeconds": 0})
    cluster.begin()
    old = copy.deepcopy(cluster.job())
    cluster.finish(cluster.live_pods[0], 1)
    cluster.job_controller()
    cluster.settle()
    cluster.clear()
    cluster.begin()
    assert cluster.status.attempt == 2
    old["metadata"]["uid"] = "risen"
    old["status"] = {}
    cluster.objects["Job", "walk-a1"] = old
    cluster.sync()
    assert cluster.decide().actions == (DeleteJob("walk-a1", "risen"),)


def test_another_job_under_the_attempts_name_is_not_taken_for_it() -> None:
    cluster = FakeCluster()
    cluster.begin()
    cluster.job()["metadata"]["uid"] = "remade by hand"
    cluster.sync()
    decision = cluster.decide()
    assert DeleteJob("walk-a1", "remade by hand") in decision.actions
    assert decision.status.history[-1].reason == "JobDeleted"


def test_orphan_deleted_pods_are_known_by_their_labels_and_taken_away() -> None:
    cluster = FakeCluster(restart={"backoffSeconds": 0})
    cluster.begin()
    pod = cluster.live_pods[0]
    del cluster.objects["Job", "walk-a1"]
    del pod["metadata"]["ownerReferences"]
    cluster.settle()
    assert cluster.status.attempt == 1
    assert "deletionTimestamp" in pod["metadata"]
    del cluster.objects["Pod", pod["metadata"]["name"]]
    cluster.step()
    assert cluster.status.attempt == 2


def test_a_pod_with_our_labels_and_another_controller_is_left_alone() -> None:
    cluster = FakeCluster(restart={"backoffSeconds": 0})
    cluster.begin()
    pod = cluster.live_pods[0]
    del cluster.objects["Job", "walk-a1"]
    pod["metadata"]["ownerReferences"] = [
        {"kind": "ReplicaSet", "name": "debug", "uid": "r", "controller": True}
    ]
    cluster.settle()
    assert cluster.status.attempt == 2
    assert "deletionTimestamp" not in pod["metadata"]


@pytest.mark.parametrize("phase", ["running", "terminal"])
def test_finalizers_that_a_pod_wrote_are_stripped(phase: str) -> None:
    cluster = FakeCluster()
    cluster.begin()
    if phase == "terminal":
        cluster.finish(cluster.live_pods[0], 0)
        cluster.clear()
    progress = cluster.objects["ConfigMap", "walk-progress"]["metadata"]
    progress["finalizers"] = ["example.com/hang"]
    cluster.sync()
    assert cluster.decide().actions == (StripFinalizers("walk-progress", progress["uid"]),)
    cluster.settle()
    progress["finalizers"] = ["foregroundDeletion"]
    cluster.sync()
    assert not cluster.decide().actions
