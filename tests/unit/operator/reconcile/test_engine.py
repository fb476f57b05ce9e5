from __future__ import annotations

import copy
from datetime import timedelta, timezone

import pytest
from fake_cluster import START, FakeCluster, WriteError

from drivetrain_api.status import Phase, Reason
from drivetrain_operator.reconcile import engine
from drivetrain_operator.reconcile.context import Context, Transition
from drivetrain_operator.reconcile.decision import Create
from drivetrain_operator.reconcile.engine import reconcile


def test_a_run_goes_from_nothing_to_complete_and_tells_each_step_once() -> None:
    cluster = FakeCluster()
    cluster.begin()
    assert cluster.status.phase is Phase.RUNNING
    for pod in cluster.live_pods:
        cluster.finish(pod, 0)
    cluster.clear()
    assert cluster.status.phase is Phase.COMPLETE
    assert [event.reason for event in cluster.recorded] == [
        Reason.ATTEMPT_STARTED,
        Reason.PODS_RUNNING,
        Reason.TRAINING_COMPLETE,
    ]


def test_the_same_look_gives_the_same_decision_and_changes_nothing_it_was_given() -> None:
    cluster = FakeCluster(podTemplate={"metadata": {"annotations": {"a": "b"}}})
    observed = cluster.observe()
    kept = copy.deepcopy(observed)
    first, second = reconcile(observed, START), reconcile(observed, START)
    assert first == second
    assert observed == kept
    create = next(action for action in first.actions if isinstance(action, Create))
    create.manifest["metadata"]["labels"]["mine"] = "now"
    assert reconcile(observed, START) == second


def test_a_later_look_at_an_unchanged_world_writes_nothing() -> None:
    cluster = FakeCluster(restart={"stallSeconds": 86_400})
    cluster.begin()
    before = cluster.status
    for _ in range(5):
        cluster.later(613.7)
        cluster.sync()
        decision = cluster.decide()
        assert (decision.status, decision.actions, decision.events) == (before, (), ())


def test_a_run_that_is_being_deleted_is_left_to_its_owner_references() -> None:
    cluster = FakeCluster()
    cluster.begin()
    before = cluster.status
    cluster.run["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    cluster.finish(cluster.live_pods[0], 1)
    cluster.job_controller()
    cluster.sync()
    decision = cluster.decide()
    assert (decision.status, decision.actions, decision.events) == (before, (), ())
    assert decision.wake_after is None


def test_times_are_utc_and_whole_seconds_whatever_the_clock_says() -> None:
    cluster = FakeCluster()
    odd = (START + timedelta(seconds=1, microseconds=999_999)).astimezone(
        timezone(timedelta(hours=5, minutes=30))
    )
    status = reconcile(cluster.observe(), odd).status
    assert status.started_at == START + timedelta(seconds=1)
    assert status.started_at is not None
    assert status.started_at.utcoffset() == timedelta(0)


@pytest.mark.parametrize("fraction", [0.0, 0.001, 0.5, 0.999])
def test_the_wake_up_is_never_before_the_moment_it_is_for(fraction: float) -> None:
    cluster = FakeCluster(restart={"backoffSeconds": 10})
    cluster.begin()
    cluster.finish(cluster.live_pods[0], 1)
    cluster.job_controller()
    cluster.settle()
    cluster.clear()
    cluster.later(3 + fraction)
    cluster.sync()
    wait = cluster.decide().wake_after
    assert wait == pytest.approx(7 - fraction)
    assert wait is not None
    cluster.later(wait)
    cluster.sync()
    assert cluster.decide().status.attempt == 2


def test_moments_between_two_seconds_wake_at_the_second_that_shows_them() -> None:
    cluster = FakeCluster()
    cluster.objects["Job", "walk-a1"] = {"kind": "Job", "metadata": {"uid": "else"}}
    cluster.later(0.6)
    with pytest.raises(WriteError, match="foreign"):
        cluster.step()
    wait = cluster.step().wake_after
    assert wait == pytest.approx(5.4)
    assert wait is not None
    cluster.later(wait)
    cluster.sync()
    assert cluster.decide().fenced


def test_the_earliest_moment_wins() -> None:
    cluster = FakeCluster(
        restart={"stallSeconds": 100}, deadlines={"activeSeconds": 50, "pendingSeconds": 70}
    )
    cluster.begin()
    assert cluster.settle().wake_after == 50.0


def test_the_generation_is_observed_even_of_a_finished_run() -> None:
    cluster = FakeCluster()
    cluster.begin()
    cluster.finish(cluster.live_pods[0], 0)
    cluster.clear()
    cluster.edit(ttlSecondsAfterFinished=10**6)
    cluster.settle()
    assert cluster.status.observed_generation == 2


def test_an_operator_that_restarts_loses_nothing_for_it_remembers_nothing() -> None:
    cluster = FakeCluster(restart={"backoffSeconds": 10})
    cluster.begin()
    cluster.finish(cluster.live_pods[0], 1)
    cluster.job_controller()
    cluster.settle()
    reborn = FakeCluster(restart={"backoffSeconds": 10})
    reborn.run, reborn.objects, reborn.now = cluster.run, cluster.objects, cluster.now
    reborn.sync()
    cluster.sync()
    assert reborn.decide() == cluster.decide()


def test_rules_that_contradict_each_other_are_an_error_not_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def flip(context: Context) -> Transition:
        return Transition(context.with_status(restarts=1 - context.status.restarts).status)

    monkeypatch.setattr(engine, "RULES", (flip,))
    with pytest.raises(RuntimeError, match="do not settle for walk"):
        reconcile(FakeCluster().observe(), START)
