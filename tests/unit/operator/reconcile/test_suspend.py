from __future__ import annotations

import pytest
from fake_cluster import Answer, FakeCluster, WriteError, conditions

from drivetrain_api.digest import PROGRESS_LIMIT, Digest, encode
from drivetrain_api.status import ConditionType, Phase, Progress, Reason
from drivetrain_operator.reconcile.decision import DeleteJob


def reason(cluster: FakeCluster, type_: ConditionType = ConditionType.SUSPENDED) -> str | None:
    found = cluster.status.condition(type_)
    return found.reason if found is not None else None


def suspended() -> FakeCluster:
    cluster = FakeCluster()
    cluster.begin()
    cluster.edit(suspend=True)
    cluster.settle()
    return cluster


def test_suspend_ends_the_attempt_and_waits_for_its_pods() -> None:
    cluster = FakeCluster()
    cluster.begin()
    uid = cluster.job()["metadata"]["uid"]
    cluster.edit(suspend=True)
    cluster.sync()
    assert DeleteJob("walk-a1", uid) in cluster.decide().actions
    cluster.settle()
    assert (cluster.status.phase, reason(cluster)) == (Phase.SUSPENDING, Reason.SUSPENDING)
    cluster.garbage_collector()
    cluster.settle()
    assert cluster.status.phase is Phase.SUSPENDING
    cluster.reap()
    cluster.settle()
    assert (cluster.status.phase, reason(cluster)) == (Phase.SUSPENDED, Reason.SUSPENDED_BY_SPEC)
    record = cluster.status.history[-1]
    assert (record.reason, record.counted) == (Reason.SUSPENDED_BY_SPEC, False)
    assert (cluster.status.restarts, cluster.status.disruptions) == (0, 0)
    assert [e.reason for e in cluster.recorded][-2:] == [
        Reason.SUSPENDING,
        Reason.SUSPENDED_BY_SPEC,
    ]


def test_exit_75_of_a_suspended_attempt_is_no_failure() -> None:
    cluster = suspended()
    cluster.clear()
    assert cluster.status.phase is Phase.SUSPENDED
    assert cluster.status.restarts == 0


def test_resume_makes_the_next_attempt_and_counts_no_restart() -> None:
    cluster = suspended()
    cluster.clear()
    cluster.edit(suspend=False)
    cluster.begin()
    status = cluster.status
    assert (status.attempt, status.restarts, status.phase) == (2, 0, Phase.RUNNING)
    assert reason(cluster) == Reason.RESUMED
    assert [job["metadata"]["name"] for job in cluster.jobs] == ["walk-a2"]


def test_the_step_axis_and_its_figures_outlive_a_suspension() -> None:
    cluster = FakeCluster()
    cluster.begin()
    progress = Progress(iteration=5, env_steps=5000, checkpoint_env_steps=4000)
    cluster.report(encode(Digest(attempt=1, progress=progress), PROGRESS_LIMIT))
    cluster.settle()
    cluster.edit(suspend=True)
    cluster.settle()
    cluster.clear()
    last = Progress(iteration=6, env_steps=6000, checkpoint_env_steps=6000)
    cluster.report(encode(Digest(attempt=1, exit_code=75, progress=last), PROGRESS_LIMIT))
    cluster.settle()
    assert cluster.status.progress == last
    cluster.edit(suspend=False)
    cluster.begin()
    assert cluster.status.progress == last
    on = Progress(iteration=7, env_steps=7000, checkpoint_env_steps=6000)
    cluster.report(encode(Digest(attempt=2, progress=on), PROGRESS_LIMIT))
    cluster.settle()
    assert cluster.status.progress == on


def test_a_run_born_suspended_makes_nothing() -> None:
    cluster = FakeCluster(suspend=True)
    decision = cluster.settle()
    assert (cluster.status.phase, cluster.status.attempt) == (Phase.SUSPENDED, 0)
    assert not cluster.objects
    assert decision.wake_after is None
    cluster.edit(suspend=False)
    cluster.begin()
    assert (cluster.status.attempt, cluster.status.phase) == (1, Phase.RUNNING)


def test_toggling_back_while_the_pods_end_waits_for_them() -> None:
    cluster = suspended()
    cluster.edit(suspend=False)
    cluster.settle()
    assert (cluster.status.phase, cluster.status.attempt) == (Phase.SUSPENDING, 1)
    cluster.garbage_collector()
    cluster.reap()
    cluster.settle()
    assert (cluster.status.phase, cluster.status.attempt) == (Phase.PENDING, 2)


def test_suspending_during_a_back_off_holds_the_restart_and_keeps_its_moment() -> None:
    cluster = FakeCluster(restart={"backoffSeconds": 100})
    cluster.begin()
    cluster.finish(cluster.live_pods[0], 1)
    cluster.job_controller()
    cluster.settle()
    cluster.edit(suspend=True)
    cluster.settle()
    cluster.clear()
    assert cluster.status.phase is Phase.SUSPENDED
    assert reason(cluster, ConditionType.RESTARTING) == Reason.SUSPENDED_BY_SPEC
    assert cluster.status.restarts == 1
    cluster.edit(suspend=False)
    assert cluster.settle().wake_after == 100.0
    assert cluster.status.attempt == 1
    cluster.later(100)
    cluster.step()
    assert cluster.status.attempt == 2


def test_an_attempt_whose_job_was_never_seen_keeps_its_number() -> None:
    """Its creation may still come through: a higher number could then run beside it."""
    cluster = FakeCluster()
    with pytest.raises(WriteError):
        cluster.apply(cluster.decide(), iter([Answer.OK] * 3 + [Answer.LOST]))
    cluster.edit(suspend=True)
    cluster.settle()
    assert (cluster.status.phase, cluster.status.history) == (Phase.SUSPENDED, ())
    cluster.later(500)
    cluster.edit(suspend=False)
    cluster.begin()
    assert (cluster.status.attempt, cluster.status.phase) == (1, Phase.RUNNING)
    assert cluster.status.attempt_started_at == cluster.now


def test_a_job_that_comes_through_late_is_ended_by_the_suspension() -> None:
    cluster = FakeCluster()
    decision = cluster.decide()
    with pytest.raises(WriteError):
        cluster.apply(decision, iter([Answer.OK] * len(decision.actions) + [Answer.TIMEOUT]))
    cluster.sync_run()
    cluster.edit(suspend=True)
    cluster.sync_run()
    late = cluster.decide()
    assert late.status.phase is Phase.SUSPENDED
    cluster.apply(late)
    cluster.settle()
    cluster.clear()
    assert not cluster.jobs
    assert cluster.status.history[-1].attempt == 1


def test_a_job_that_is_done_is_not_suspended() -> None:
    cluster = FakeCluster()
    cluster.begin()
    for pod in cluster.live_pods:
        cluster.finish(pod, 0)
    cluster.job_controller()
    assert "SuccessCriteriaMet" in conditions(cluster.job())
    cluster.edit(suspend=True)
    assert not cluster.settle().actions
    cluster.job_controller()
    cluster.settle()
    assert cluster.status.phase is Phase.COMPLETE


def test_a_failure_for_good_is_told_though_the_run_is_suspended_at_the_same_time() -> None:
    cluster = FakeCluster()
    cluster.begin()
    cluster.finish(cluster.live_pods[0], 3)
    cluster.job_controller()
    cluster.edit(suspend=True)
    cluster.settle()
    assert cluster.status.phase is Phase.FAILED


def test_a_lost_node_does_not_keep_a_run_suspending() -> None:
    cluster = suspended()
    cluster.lost_nodes.add("node-1")
    cluster.garbage_collector()
    cluster.reap()
    assert cluster.settle().wake_after == 90.0
    cluster.later(90)
    cluster.settle()
    assert cluster.status.phase is Phase.SUSPENDED
    assert not cluster.pods
