from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from fake_cluster import FakeCluster
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivetrain_api.digest import PROGRESS_LIMIT, TERMINATION_LIMIT, Digest, encode
from drivetrain_api.status import (
    Artifact,
    ConditionType,
    Phase,
    Progress,
    Reason,
    RunSummaryDigest,
    SoakDigest,
    SoakVerdict,
    TrainingRunStatus,
)

SUMMARY = RunSummaryDigest(status="completed", total_env_steps=900, evaluated_return="9101.5")
ARTIFACTS = (Artifact(name="best_checkpoint", uri="logs/sac/hopper/best", bytes=12),)


def running() -> FakeCluster:
    cluster = FakeCluster()
    cluster.begin()
    return cluster


def report(cluster: FakeCluster, **fields: Any) -> None:
    cluster.report(encode(Digest(**({"attempt": 1} | fields)), PROGRESS_LIMIT))
    cluster.settle()


def test_a_digest_is_copied_whole() -> None:
    cluster = running()
    at = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
    progress = Progress(iteration=3, env_steps=300, steps_per_second="812.5", eta_seconds=60, at=at)
    report(cluster, progress=progress, run_summary=SUMMARY, artifacts=ARTIFACTS)
    status = cluster.status
    assert (status.progress, status.run_summary, status.artifacts) == (progress, SUMMARY, ARTIFACTS)
    assert status.condition(ConditionType.CHECKPOINTED) is None


def test_what_a_later_digest_left_out_for_want_of_room_is_kept() -> None:
    cluster = running()
    report(cluster, run_summary=SUMMARY, artifacts=ARTIFACTS)
    report(cluster, progress=Progress(env_steps=5))
    assert (cluster.status.run_summary, cluster.status.artifacts) == (SUMMARY, ARTIFACTS)


@pytest.mark.parametrize("attempt", [0, 2, 7])
def test_a_digest_of_another_attempt_is_ignored(attempt: int) -> None:
    cluster = running()
    report(cluster, attempt=attempt, progress=Progress(env_steps=5), run_summary=SUMMARY)
    assert (cluster.status.progress, cluster.status.run_summary) == (None, None)


def test_checkpointed_follows_the_newest_checkpoint_and_is_told_once() -> None:
    cluster = running()
    for steps in (100, 200):
        cluster.later(10)
        report(cluster, progress=Progress(env_steps=steps, checkpoint_env_steps=steps))
    checkpointed = cluster.status.condition(ConditionType.CHECKPOINTED)
    assert checkpointed is not None
    assert checkpointed.message == "newest checkpoint at 200 environment steps"
    assert (cluster.now - checkpointed.last_transition_time).total_seconds() == 10
    assert [e.reason for e in cluster.recorded].count(Reason.CHECKPOINT_WRITTEN) == 1


def test_other_figures_are_copied_without_being_taken_for_progress() -> None:
    cluster = running()
    report(cluster, progress=Progress(env_steps=5, steps_per_second="10"))
    moved = cluster.now
    cluster.later(10)
    slower = Progress(env_steps=5, steps_per_second="0.5")
    report(cluster, progress=slower)
    assert (cluster.status.progress, cluster.status.progressed_at) == (slower, moved)


def test_only_the_runs_own_progress_config_map_is_read() -> None:
    cluster = running()
    own = cluster.objects["ConfigMap", "walk-progress"]
    text = encode(Digest(attempt=1, progress=Progress(env_steps=5)), PROGRESS_LIMIT)
    cluster.objects["ConfigMap", "other"] = {
        "kind": "ConfigMap",
        "metadata": {**own["metadata"], "name": "other", "uid": "o"},
        "data": {"progress": text},
    }
    cluster.objects["ConfigMap", "walk-a1"]["data"]["progress"] = text
    cluster.settle()
    assert cluster.status.progress is None
    own["metadata"]["ownerReferences"][0]["uid"] = "another-run"
    own["data"]["progress"] = text
    cluster.settle()
    assert cluster.status.progress is None


def test_the_termination_message_of_index_0_stands_in_for_a_patch_that_was_lost() -> None:
    cluster = FakeCluster(topology={"nodes": 2})
    cluster.begin()
    report(cluster, progress=Progress(env_steps=5))
    first, second = cluster.live_pods
    last = Digest(attempt=1, exit_code=0, progress=Progress(env_steps=9), run_summary=SUMMARY)
    other = Digest(attempt=1, exit_code=0, progress=Progress(env_steps=1))
    cluster.finish(first, 0, message=encode(last, TERMINATION_LIMIT))
    cluster.finish(second, 0, message=encode(other, TERMINATION_LIMIT))
    cluster.settle()
    assert cluster.status.progress == Progress(env_steps=9)
    assert cluster.status.run_summary == SUMMARY


def test_another_nodes_words_are_not_the_runs() -> None:
    cluster = FakeCluster(topology={"nodes": 2})
    cluster.begin()
    first, second = cluster.live_pods
    other = Digest(attempt=1, exit_code=0, progress=Progress(env_steps=1))
    cluster.finish(second, 0, message=encode(other, TERMINATION_LIMIT))
    del cluster.objects["Pod", first["metadata"]["name"]]
    cluster.settle()
    assert cluster.status.progress is None


def test_the_last_words_still_arrive_after_the_end_and_change_nothing_else() -> None:
    cluster = running()
    cluster.finish(cluster.live_pods[0], 0)
    for _ in range(3):
        cluster.job_controller()
        cluster.settle()
    before = cluster.status
    assert before.phase is Phase.COMPLETE
    report(cluster, exit_code=0, progress=Progress(env_steps=9), run_summary=SUMMARY)
    after = cluster.status
    assert after.run_summary == SUMMARY
    assert (after.phase, after.finished_at, after.history) == (
        before.phase,
        before.finished_at,
        before.history,
    )


VERDICT = SoakDigest(
    verdict=SoakVerdict.FAILED,
    attempt=1,
    failure_classification="resource_leak",
    failure_reason="resident memory grew by 300.0 MiB in 1700 s and went on growing",
    duration_seconds=1801,
    samples=361,
    peak_rss_bytes=2 << 30,
    rss_growth_bytes=300 << 20,
)


def soaked() -> FakeCluster:
    cluster = FakeCluster(soak={"sampleSeconds": 5})
    cluster.begin()
    return cluster


def test_a_soaks_verdict_is_copied_and_decides_nothing() -> None:
    cluster = soaked()
    phase = cluster.status.phase
    report(cluster, exit_code=0, soak=VERDICT)
    assert (cluster.status.soak, cluster.status.phase) == (VERDICT, phase)
    wire = cluster.run["status"]["soak"]
    assert (wire["verdict"], wire["failureClassification"]) == ("Failed", "resource_leak")
    cluster.later(10)
    report(cluster, progress=Progress(env_steps=5))
    assert cluster.status.soak == VERDICT


def test_a_verdict_that_nobody_asked_for_is_ignored() -> None:
    cluster = running()
    report(cluster, exit_code=0, soak=VERDICT)
    assert cluster.status.soak is None


def test_a_verdict_on_another_attempt_is_ignored() -> None:
    cluster = soaked()
    report(cluster, soak=VERDICT.model_copy(update={"attempt": 2}))
    assert cluster.status.soak is None


HOSTILE_VERDICTS = [
    {"verdict": "Perfect", "attempt": 1},
    {"verdict": "Passed"},
    {"verdict": "Passed", "attempt": True},
    {"verdict": "Passed", "attempt": 1, "samples": -1},
    {"verdict": "Passed", "attempt": 1, "peakRssBytes": 2**63},
    {"verdict": "Passed", "attempt": 1, "durationSeconds": 1.5},
    {"verdict": "Passed", "attempt": 1, "failureReason": "x" * 1025},
    {"verdict": "Passed", "attempt": 1, "conditions": []},
    ["Passed"],
]


@pytest.mark.parametrize("verdict", HOSTILE_VERDICTS)
def test_what_is_no_verdict_changes_nothing(verdict: Any) -> None:
    cluster = soaked()
    before = cluster.status
    cluster.report(json.dumps({"attempt": 1, "progress": {"envSteps": 5}, "soak": verdict}))
    cluster.settle()
    assert cluster.status == before


@pytest.mark.parametrize(
    "at",
    ["2026-03-01T12:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"],
)
def test_a_time_that_no_status_can_hold_is_left_out(at: str) -> None:
    cluster = running()
    wire = {"schemaVersion": 1, "attempt": 1, "progress": {"envSteps": 5, "at": at}}
    cluster.report(json.dumps(wire))
    cluster.settle()
    assert cluster.status.progress == Progress(env_steps=5)


def test_a_time_with_an_offset_is_told_in_utc() -> None:
    cluster = running()
    wire = {"attempt": 1, "progress": {"envSteps": 5, "at": "2026-03-01T14:00:00+02:00"}}
    cluster.report(json.dumps(wire))
    cluster.settle()
    assert cluster.run["status"]["progress"]["at"] == "2026-03-01T12:00:00Z"


HOSTILE = [
    "",
    "null",
    "[]",
    "{}",
    "not json",
    "[" * 4000,
    json.dumps({"attempt": 1, "phase": "Complete"}),
    json.dumps({"attempt": True, "progress": {"envSteps": 5}}),
    json.dumps({"attempt": 1, "progress": {"envSteps": -5}}),
    json.dumps({"attempt": 1, "progress": {"envSteps": 2**63}}),
    json.dumps({"attempt": 1, "progress": {"stepsPerSecond": "NaN"}}),
    json.dumps({"attempt": 1, "progress": {"envSteps": 1.5}}),
    json.dumps({"attempt": 1, "message": "x" * 5000}),
    json.dumps({"attempt": 1, "schemaVersion": 2}),
    json.dumps({"attempt": 1, "conditions": [{"type": "Complete", "status": "True"}]}),
    '{"attempt": 1, "message": "\\ud800"}',
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_digest_changes_nothing(text: str) -> None:
    cluster = running()
    before = cluster.status
    cluster.report(text)
    assert not cluster.settle().actions
    assert cluster.status == before


def test_absurd_figures_decide_nothing() -> None:
    cluster = FakeCluster(evaluator={"target": 9000.0})
    cluster.begin()
    huge = RunSummaryDigest(status="completed", evaluated_return="1e9999999999999999999")
    report(cluster, exit_code=0, progress=Progress(env_steps=5), run_summary=huge)
    assert cluster.status.phase is Phase.RUNNING
    cluster.finish(cluster.live_pods[0], 0)
    cluster.clear()
    assert cluster.status.phase is Phase.COMPLETE


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    progress=st.text(max_size=200)
    | st.dictionaries(st.text(max_size=10), st.text(max_size=20)).map(json.dumps),
    message=st.text(max_size=3000),
    code=st.integers(0, 255),
)
def test_whatever_a_pod_writes_the_status_stays_valid_and_forges_no_condition(
    progress: str, message: str, code: int
) -> None:
    cluster = running()
    cluster.report(progress)
    cluster.settle()
    assert cluster.status.phase is Phase.RUNNING
    cluster.finish(cluster.live_pods[0], code, message=message)
    cluster.job_controller()
    cluster.settle()
    wire = cluster.status.model_dump_json(by_alias=True, exclude_none=True)
    assert TrainingRunStatus.model_validate_json(wire) == cluster.status
    assert all(len(c.message) <= 1024 for c in cluster.status.conditions)
    assert (cluster.status.phase is Phase.COMPLETE) is False
