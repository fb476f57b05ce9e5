from __future__ import annotations

import pytest
from fake_cluster import FakeCluster

from drivetrain_api.status import Phase
from drivetrain_operator.reconcile.decision import DeleteChild, DeleteJob


def finished(code: int = 0, ttl: int | None = 100) -> FakeCluster:
    cluster = FakeCluster(
        storage={"size": "1Gi"}, restart={"maxRestarts": 0}, ttlSecondsAfterFinished=ttl
    )
    cluster.begin()
    cluster.finish(cluster.live_pods[0], code)
    for _ in range(3):
        cluster.job_controller()
        cluster.settle()
    return cluster


@pytest.mark.parametrize("code", [0, 1, 2])
def test_children_of_a_finished_run_go_after_its_time_and_its_files_stay(code: int) -> None:
    cluster = finished(code)
    phase = cluster.status.phase
    cluster.later(99)
    assert cluster.settle().wake_after == 1.0
    assert cluster.jobs
    assert cluster.pods
    cluster.later(1)
    cluster.clear()
    assert {kind for kind, _ in cluster.objects} == {"PersistentVolumeClaim"}
    assert cluster.status.phase is phase
    assert cluster.settle().wake_after is None


def test_what_is_watched_goes_last() -> None:
    cluster = finished()
    cluster.later(100)
    cluster.sync()
    actions = cluster.decide().actions
    assert isinstance(actions[0], DeleteJob)
    deleted = [(a.kind.value, a.name) for a in actions if isinstance(a, DeleteChild)]
    assert deleted == [
        ("Service", "walk-a1"),
        ("ConfigMap", "walk-a1"),
        ("RoleBinding", "walk-trainer"),
        ("Role", "walk-trainer"),
        ("ServiceAccount", "walk-trainer"),
        ("ConfigMap", "walk-progress"),
    ]


def test_without_a_time_everything_is_kept() -> None:
    cluster = finished(ttl=None)
    cluster.later(10**8)
    decision = cluster.settle()
    assert (decision.actions, decision.wake_after) == ((), None)


def test_a_time_set_or_put_off_after_the_end_counts_from_the_end() -> None:
    cluster = finished(ttl=None)
    cluster.later(50)
    cluster.edit(ttlSecondsAfterFinished=60)
    assert cluster.settle().wake_after == 10.0
    cluster.edit(ttlSecondsAfterFinished=200)
    assert cluster.settle().wake_after == 150.0


def test_zero_takes_them_at_once() -> None:
    cluster = finished(ttl=0)
    cluster.clear()
    assert {kind for kind, _ in cluster.objects} == {"PersistentVolumeClaim"}


def test_a_finished_run_is_not_made_again_after_its_children_are_gone() -> None:
    cluster = finished()
    cluster.later(100)
    cluster.clear()
    cluster.later(10**6)
    cluster.edit(seed=3)
    decision = cluster.settle()
    assert not decision.actions
    assert cluster.status.phase is Phase.COMPLETE
    assert cluster.status.attempt == 1


def test_a_run_that_is_not_over_has_no_such_time() -> None:
    cluster = FakeCluster(ttlSecondsAfterFinished=0, restart={"stallSeconds": 60})
    cluster.begin()
    cluster.later(30)
    assert not cluster.settle().actions
