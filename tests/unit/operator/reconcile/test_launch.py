from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from fake_cluster import START, Answer, FakeCluster, WriteError, stamp

from drivetrain_api import labels
from drivetrain_api.digest import PROGRESS_LIMIT, Digest, encode
from drivetrain_api.status import ConditionType, Phase, Progress, Reason, TrainingRunStatus
from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.manifests.settings import Settings
from drivetrain_operator.reconcile.decision import Create, Decision, DeleteChild
from drivetrain_operator.reconcile.engine import reconcile
from drivetrain_operator.reconcile.snapshot import RefusedChild


def created(cluster: FakeCluster) -> list[str]:
    return [a.kind.value for a in cluster.decide().actions if isinstance(a, Create)]


def test_the_first_attempt_is_decided_and_created_job_last() -> None:
    cluster = FakeCluster(storage={"size": "5Gi"})
    decision = cluster.decide()
    assert decision.fenced
    assert decision.status.attempt == 1
    assert decision.status.started_at == decision.status.attempt_started_at == START
    assert decision.status.storage == "walk-storage"
    assert created(cluster) == [
        "PersistentVolumeClaim",
        "ConfigMap",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "ConfigMap",
        "Service",
        "Job",
    ]


def test_creation_is_asked_for_until_the_job_is_seen() -> None:
    cluster = FakeCluster()
    for _ in range(3):
        cluster.sync()
        with pytest.raises(WriteError):
            cluster.apply(cluster.decide(), iter([Answer.OK, Answer.OK, Answer.LOST]))
        assert cluster.status.attempt == 1
    cluster.step()
    assert cluster.status.job_uid is None
    cluster.step()
    assert cluster.status.job_uid == cluster.job()["metadata"]["uid"]
    assert created(cluster) == []


def test_a_creation_that_timed_out_but_came_through_is_taken_for_done() -> None:
    cluster = FakeCluster()
    decision = cluster.decide()
    with pytest.raises(WriteError):
        cluster.apply(decision, iter([Answer.OK] * len(decision.actions) + [Answer.TIMEOUT]))
    cluster.settle()
    assert len(cluster.jobs) == 1
    assert cluster.status.attempt == 1


def test_a_stale_status_keeps_every_creation_back() -> None:
    cluster = FakeCluster()
    cluster.sync()
    cluster.edit(seed=7)
    with pytest.raises(WriteError, match="conflict"):
        cluster.apply(cluster.decide())
    assert not cluster.objects


def test_settings_reach_the_manifests() -> None:
    cluster = FakeCluster()
    decision = reconcile(cluster.observe(), cluster.now, Settings(image="registry/trainer:7"))
    job = next(a for a in decision.actions if isinstance(a, Create) and a.kind is ChildKind.JOB)
    template = job.manifest["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "registry/trainer:7"


def restarted(**spec: Any) -> FakeCluster:
    cluster = FakeCluster(restart={"backoffSeconds": 10}, **spec)
    cluster.begin()
    cluster.finish(cluster.live_pods[0], 1)
    cluster.job_controller()
    cluster.settle()
    return cluster


def test_the_next_attempt_waits_for_the_back_off() -> None:
    cluster = restarted()
    cluster.clear()
    cluster.later(9)
    assert cluster.settle().wake_after == 1.0
    cluster.later(1)
    cluster.step()
    assert cluster.status.attempt == 2
    assert cluster.status.phase is Phase.PENDING


def test_the_next_attempt_waits_for_the_last_pod() -> None:
    cluster = restarted(topology={"nodes": 2})
    assert [p["status"]["phase"] for p in cluster.pods] == ["Failed", "Running"]
    cluster.garbage_collector()
    cluster.later(15)
    cluster.settle()
    assert cluster.status.attempt == 1
    assert not cluster.jobs
    cluster.reap()
    cluster.step()
    assert cluster.status.attempt == 2


def test_the_object_of_a_pod_that_is_over_keeps_nothing_back() -> None:
    cluster = restarted()
    cluster.later(10)
    cluster.settle()
    assert [p["status"]["phase"] for p in cluster.pods] == ["Failed"]
    assert cluster.status.attempt == 2


def test_a_pod_of_an_older_attempt_keeps_the_job_back_even_once_it_is_decided() -> None:
    cluster = restarted()
    straggler = copy.deepcopy(cluster.pods[0])
    straggler["status"] = {"phase": "Running"}
    cluster.clear()
    cluster.later(10)
    cluster.sync()
    cluster.apply(Decision(cluster.decide().status))
    assert cluster.status.attempt == 2
    cluster.objects["Pod", "straggler"] = straggler
    cluster.sync()
    assert created(cluster) == []
    del cluster.objects["Pod", "straggler"]
    cluster.sync()
    assert created(cluster)[-1] == "Job"


def test_an_attempt_has_values_of_its_own_and_the_run_keeps_its_own() -> None:
    cluster = restarted()
    cluster.report(encode(Digest(attempt=1, progress=Progress(env_steps=5)), PROGRESS_LIMIT))
    cluster.clear()
    before = cluster.status
    assert before.progressed_at is not None
    cluster.later(10)
    cluster.step()
    status = cluster.status
    assert status.attempt_started_at == cluster.now
    assert status.started_at == START
    assert (status.job_uid, status.attempt_running_at, status.progressed_at) == (None, None, None)
    assert (status.next_attempt_at, status.disruption_seen) == (None, None)
    assert status.progress == before.progress
    assert (status.restarts, status.history) == (before.restarts, before.history)
    restarting = status.condition(ConditionType.RESTARTING)
    assert restarting is not None
    assert restarting.reason == Reason.ATTEMPT_STARTED


def test_a_foreign_object_is_named_left_alone_and_tried_again() -> None:
    cluster = FakeCluster()
    foreign = {"kind": "Service", "metadata": {"name": "walk-a1", "uid": "else"}}
    cluster.objects["Service", "walk-a1"] = foreign
    with pytest.raises(WriteError, match="foreign"):
        cluster.step()
    decision = cluster.step()
    scheduled = cluster.status.condition(ConditionType.SCHEDULED)
    assert scheduled is not None
    assert scheduled.reason == Reason.NAME_TAKEN
    assert "Service walk-a1" in scheduled.message
    assert not decision.actions
    assert decision.wake_after == 5.0
    assert cluster.objects["Service", "walk-a1"] is foreign
    assert [e.reason for e in cluster.recorded].count(Reason.NAME_TAKEN) == 1

    cluster.later(5)
    with pytest.raises(WriteError, match="foreign"):
        cluster.step()
    cluster.settle()
    assert [e.reason for e in cluster.recorded].count(Reason.NAME_TAKEN) == 1

    del cluster.objects["Service", "walk-a1"]
    cluster.later(5)
    cluster.begin()
    assert cluster.status.phase is Phase.RUNNING
    assert not cluster.foreign


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("exceeded quota: none, requested: count/jobs.batch=1", Reason.QUOTA_EXCEEDED),
        ("admission webhook denied the request: no", Reason.CREATION_REFUSED),
    ],
)
def test_a_refused_job_is_a_condition_until_it_is_made(words: str, reason: Reason) -> None:
    cluster = FakeCluster()
    cluster.forbids[ChildKind.JOB] = words
    for _ in range(3):
        with pytest.raises(WriteError, match="refused"):
            cluster.step()
    scheduled = cluster.status.condition(ConditionType.SCHEDULED)
    assert scheduled is not None
    assert scheduled.reason == reason
    assert scheduled.message == f"Job walk-a1 cannot be created: {words}"
    assert [e.message for e in cluster.recorded if e.reason == reason] == [scheduled.message]

    cluster.forbids.clear()
    cluster.begin()
    assert cluster.status.phase is Phase.RUNNING
    assert cluster.status.is_true(ConditionType.SCHEDULED)


def test_a_taken_name_is_told_before_a_refusal() -> None:
    cluster = FakeCluster()
    cluster.objects["Service", "walk-a1"] = {
        "kind": "Service",
        "metadata": {"name": "walk-a1", "uid": "else"},
    }
    with pytest.raises(WriteError, match="foreign"):
        cluster.step()
    cluster.refused = RefusedChild(ChildKind.ROLE, "walk-trainer", "no")
    cluster.settle()
    scheduled = cluster.status.condition(ConditionType.SCHEDULED)
    assert scheduled is not None
    assert scheduled.reason == Reason.NAME_TAKEN


def test_the_pending_deadline_tells_of_the_refusal() -> None:
    cluster = FakeCluster(deadlines={"pendingSeconds": 60})
    cluster.forbids[ChildKind.JOB] = "exceeded quota: none"
    with pytest.raises(WriteError, match="refused"):
        cluster.step()
    cluster.later(61)
    cluster.settle()
    failed = cluster.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert "Job walk-a1 cannot be created: exceeded quota: none" in failed.message


def test_a_spec_edited_before_the_job_was_made_reaches_the_pods() -> None:
    cluster = FakeCluster()
    answers = [Answer.OK] * 7 + [Answer.LOST]
    with pytest.raises(WriteError):
        cluster.apply(cluster.decide(), iter(answers))
    cluster.edit(seed=41)
    cluster.sync()
    actions = cluster.decide().actions
    assert actions[0] == DeleteChild(ChildKind.CONFIG_MAP, "walk-a1", "run-uid-1")
    cluster.settle()
    run_json = json.loads(cluster.objects["ConfigMap", "walk-a1"]["data"]["run.json"])
    assert run_json["spec"]["seed"] == 41


@pytest.mark.parametrize(
    ("labels_", "owner", "name"),
    [
        ({labels.ATTEMPT: "1"}, "another-run", "walk-a1"),
        ({labels.ATTEMPT: "1"}, None, "walk-a1"),
        ({labels.ATTEMPT: "2"}, "run-uid-1", "walk-a1"),
        ({labels.ATTEMPT: "x"}, "run-uid-1", "walk-a1"),
        ({}, "run-uid-1", "walk-a1"),
    ],
)
def test_a_job_is_ours_by_owner_attempt_and_name_together(
    labels_: dict[str, str], owner: str | None, name: str
) -> None:
    cluster = FakeCluster()
    refs = [] if owner is None else [{"kind": "TrainingRun", "uid": owner, "controller": True}]
    cluster.objects["Job", name] = {
        "kind": "Job",
        "metadata": {"name": name, "uid": "u", "labels": labels_, "ownerReferences": refs},
    }
    cluster.sync()
    decision = cluster.decide()
    assert decision.status.job_uid is None
    assert not any(not isinstance(action, Create) for action in decision.actions)


def test_a_lost_status_goes_on_with_the_newest_job_not_with_attempt_one() -> None:
    cluster = restarted()
    cluster.clear()
    cluster.later(10)
    cluster.begin()
    assert cluster.status.attempt == 2
    uid = cluster.status.job_uid
    del cluster.run["status"]
    cluster.statuses.append(TrainingRunStatus())
    cluster.settle()
    status = cluster.status
    assert (status.attempt, status.job_uid, status.phase) == (2, uid, Phase.RUNNING)
    assert len(cluster.jobs) == 1


def test_numbers_that_were_used_are_not_used_again() -> None:
    cluster = restarted()
    cluster.clear()
    cluster.objects["ConfigMap", "walk-a7"] = {
        "kind": "ConfigMap",
        "metadata": {
            "name": "walk-a7",
            "uid": "cm",
            "creationTimestamp": stamp(START),
            "labels": {labels.ATTEMPT: "7"},
            "ownerReferences": [{"kind": "TrainingRun", "uid": "run-uid-1", "controller": True}],
        },
    }
    cluster.later(10)
    cluster.step()
    assert cluster.status.attempt == 8
