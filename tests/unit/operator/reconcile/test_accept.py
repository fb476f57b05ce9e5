from __future__ import annotations

import sys
from typing import Any

import pytest
from fake_cluster import FakeCluster

from drivetrain_api.status import ConditionStatus, ConditionType, Phase, Reason
from drivetrain_operator.reconcile.decision import EventType

REFUSED = [
    ({"seed": "one"}, "seed"),
    ({"seed": True}, "seed"),
    ({"algo": {"name": "td3"}}, "algo.name"),
    ({"restart": {"maxRestarts": -1}}, "restart.max_restarts"),
    ({"gears": 5}, "gears"),
    ({"podTemplate": {"spec": {"restartPolicy": "Always"}}}, "pod_template.spec.restartPolicy"),
]


@pytest.mark.parametrize(("spec", "path"), REFUSED)
def test_a_refused_spec_is_held_and_each_path_is_named(spec: dict[str, Any], path: str) -> None:
    cluster = FakeCluster(**spec)
    decision = cluster.settle()
    accepted = cluster.status.condition(ConditionType.ACCEPTED)
    assert accepted is not None
    assert (accepted.status, accepted.reason) == (ConditionStatus.FALSE, Reason.INVALID_SPEC)
    assert path in accepted.message
    assert cluster.status.phase is Phase.PENDING
    assert cluster.status.attempt == 0
    assert not decision.actions
    assert [(e.type, e.reason) for e in cluster.recorded] == [
        (EventType.WARNING, Reason.INVALID_SPEC)
    ]


@pytest.mark.parametrize(("levels", "refused"), [(64, False), (65, True), (3_000, True)])
def test_a_pod_template_of_too_many_levels_is_refused(levels: int, refused: bool) -> None:
    """As deep as an API server lets in: neither merging nor writing it must recurse so far."""
    deep: Any = {}
    for number in range(levels - 3):  # spec, securityContext and the innermost are levels, too
        deep = {"a": deep} if number % 2 else [deep]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(12_500)  # as a `Cluster` does
    try:
        cluster = FakeCluster(podTemplate={"spec": {"securityContext": deep}})
        cluster.sync()
        decision = cluster.decide()
    finally:
        sys.setrecursionlimit(limit)
    accepted = decision.status.condition(ConditionType.ACCEPTED)
    assert accepted is not None
    assert accepted.reason == (Reason.INVALID_SPEC if refused else Reason.VALID)
    assert bool(decision.actions) is not refused
    if refused:
        assert accepted.message == "pod_template: must have at most 64 levels"


def test_every_violation_is_told_and_the_message_is_bounded() -> None:
    cluster = FakeCluster(seed="a", gears=1, **{f"unknown{i}" * 20: 1 for i in range(20)})
    cluster.settle()
    accepted = cluster.status.condition(ConditionType.ACCEPTED)
    assert accepted is not None
    assert accepted.message.count("; ") >= 2
    assert len(accepted.message) <= 1024


def test_an_edit_that_cures_the_spec_starts_the_run() -> None:
    cluster = FakeCluster(seed="one")
    cluster.settle()
    cluster.edit(seed=1)
    cluster.step()
    accepted = cluster.status.condition(ConditionType.ACCEPTED)
    assert accepted is not None
    assert accepted.reason == Reason.VALID
    assert accepted.observed_generation == 2
    assert cluster.status.attempt == 1
    assert cluster.status.observed_generation == 2


def test_a_running_attempt_goes_on_while_the_spec_is_refused() -> None:
    cluster = FakeCluster()
    cluster.begin()
    cluster.edit(seed="wrong")
    cluster.later(10_000)
    decision = cluster.settle()
    assert not decision.actions
    assert cluster.status.phase is Phase.RUNNING
    assert not cluster.status.is_true(ConditionType.ACCEPTED)
    for pod in cluster.live_pods:
        cluster.finish(pod, 0)
    cluster.clear()
    assert cluster.status.phase is Phase.COMPLETE


def test_a_failure_waits_for_a_spec_that_says_what_follows() -> None:
    cluster = FakeCluster()
    cluster.begin()
    cluster.edit(seed="wrong")
    cluster.finish(cluster.live_pods[0], 1)
    cluster.job_controller()
    cluster.settle()
    assert cluster.status.restarts == 0
    cluster.edit(seed=2)
    cluster.settle()
    assert (cluster.status.phase, cluster.status.restarts) == (Phase.RESTARTING, 1)


def test_another_refusal_is_another_event_and_the_same_one_is_not() -> None:
    cluster = FakeCluster(seed="one")
    cluster.settle()
    cluster.edit(seed="one")
    cluster.settle()
    cluster.edit(seed=-1)
    cluster.settle()
    assert len(cluster.recorded) == 2


def test_ranks_are_nodes_times_ranks_per_node() -> None:
    cluster = FakeCluster(topology={"nodes": 2, "ranksPerNode": 3})
    cluster.step()
    assert cluster.status.ranks == 6
