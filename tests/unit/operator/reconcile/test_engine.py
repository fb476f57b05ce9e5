from __future__ import annotations

from fake_cluster import FakeCluster

from drivetrain_api.status import Phase, Reason


def test_a_run_goes_from_nothing_to_complete() -> None:
    cluster = FakeCluster()
    cluster.begin()
    assert cluster.status.phase is Phase.RUNNING
    for pod in cluster.live_pods:
        cluster.finish(pod, 0)
    for _ in range(3):
        cluster.job_controller()
        cluster.settle()
    assert cluster.status.phase is Phase.COMPLETE
    assert [event.reason for event in cluster.recorded] == [
        Reason.ATTEMPT_STARTED,
        Reason.PODS_RUNNING,
        Reason.TRAINING_COMPLETE,
    ]
