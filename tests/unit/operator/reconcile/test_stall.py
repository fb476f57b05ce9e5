from __future__ import annotations

from datetime import timedelta

from fake_cluster import START, FakeCluster

from drivetrain_api.digest import PROGRESS_LIMIT, Digest, encode
from drivetrain_api.status import ConditionType, Phase, Progress, Reason


def running(**restart: int) -> FakeCluster:
    cluster = FakeCluster(restart={"stallSeconds": 60, "backoffSeconds": 10} | restart)
    cluster.begin()
    return cluster


def report(cluster: FakeCluster, iteration: int, *, attempt: int = 1, minutes: int = 0) -> None:
    progress = Progress(
        iteration=iteration, env_steps=iteration * 10, at=START + timedelta(minutes=minutes)
    )
    cluster.report(encode(Digest(attempt=attempt, progress=progress), PROGRESS_LIMIT))
    cluster.settle()


def test_first_figures_are_awaited_from_the_moment_it_runs() -> None:
    cluster = running()
    cluster.later(59)
    assert cluster.settle().wake_after == 1.0
    cluster.later(1)
    cluster.settle()
    status = cluster.status
    assert (status.phase, status.restarts) == (Phase.RESTARTING, 1)
    assert status.history[-1].reason == Reason.STALLED
    assert status.is_true(ConditionType.STALLED)
    assert [e.reason for e in cluster.recorded][-1] == Reason.STALLED


def test_waiting_for_pods_is_no_stall() -> None:
    cluster = FakeCluster(restart={"stallSeconds": 60})
    cluster.begin(running=False)
    cluster.later(5000)
    cluster.settle()
    assert cluster.status.phase is Phase.PENDING


def test_new_figures_start_the_wait_anew_by_the_operators_clock() -> None:
    cluster = running()
    cluster.later(50)
    report(cluster, 1, minutes=-500)
    assert cluster.status.progressed_at == cluster.now
    cluster.later(59)
    cluster.settle()
    assert cluster.status.phase is Phase.RUNNING
    cluster.later(1)
    cluster.settle()
    assert cluster.status.phase is Phase.RESTARTING
    assert "at 10 environment steps" in cluster.status.history[-1].message


def test_a_report_whose_time_alone_is_new_is_no_progress_and_no_write() -> None:
    cluster = running()
    report(cluster, 1)
    version = cluster.run["metadata"]["resourceVersion"]
    for minutes in (1, 2, 3):
        cluster.later(15)
        report(cluster, 1, minutes=minutes)
    assert cluster.run["metadata"]["resourceVersion"] == version
    cluster.later(15)
    cluster.settle()
    assert cluster.status.phase is Phase.RESTARTING


def test_figures_of_an_older_attempt_are_no_progress() -> None:
    cluster = running()
    report(cluster, 1, attempt=0)
    report(cluster, 2, attempt=2)
    assert cluster.status.progress is None
    cluster.later(60)
    cluster.settle()
    assert cluster.status.phase is Phase.RESTARTING


def test_the_next_attempt_is_judged_by_its_own_time_and_clears_the_condition() -> None:
    cluster = running()
    report(cluster, 7)
    cluster.later(60)
    cluster.settle()
    cluster.clear()
    cluster.later(1000)
    cluster.begin()
    assert cluster.settle().wake_after == 60.0
    assert cluster.status.condition(ConditionType.STALLED) is not None
    assert not cluster.status.is_true(ConditionType.STALLED)
    report(cluster, 7, attempt=2)
    assert cluster.status.phase is Phase.RUNNING


def test_figures_that_come_after_the_verdict_do_not_undo_it() -> None:
    cluster = running()
    cluster.later(60)
    cluster.settle()
    report(cluster, 9)
    assert cluster.status.progress is not None
    assert cluster.status.is_true(ConditionType.STALLED)


def test_stalls_use_up_the_restarts() -> None:
    cluster = running(maxRestarts=0)
    cluster.later(60)
    cluster.settle()
    failed = cluster.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == Reason.RESTARTS_EXHAUSTED
    assert "Stalled: no progress for 60 s" in failed.message


def test_a_job_about_to_be_complete_does_not_stall() -> None:
    cluster = running()
    for pod in cluster.live_pods:
        cluster.finish(pod, 0)
    cluster.job_controller()
    cluster.later(600)
    cluster.settle()
    cluster.job_controller()
    cluster.settle()
    assert cluster.status.phase is Phase.COMPLETE
