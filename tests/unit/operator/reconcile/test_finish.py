from __future__ import annotations

from typing import Any

import pytest
from fake_cluster import FakeCluster, set_condition

from drivetrain_api.digest import PROGRESS_LIMIT, TERMINATION_LIMIT, Digest, encode
from drivetrain_api.status import ConditionType, Phase, Progress, Reason, RunSummaryDigest
from drivetrain_operator.reconcile.decision import Decision


def running(**spec: Any) -> FakeCluster:
    cluster = FakeCluster(**spec)
    cluster.begin()
    return cluster


def work(cluster: FakeCluster) -> None:
    for _ in range(3):
        cluster.job_controller()
        cluster.settle()


def condition_reason(cluster: FakeCluster, type_: ConditionType) -> str:
    found = cluster.status.condition(type_)
    assert found is not None
    return found.reason


def test_complete_needs_the_job_complete_and_not_one_pod_less() -> None:
    cluster = running(topology={"nodes": 2})
    first, second = cluster.live_pods
    cluster.finish(first, 0)
    work(cluster)
    assert cluster.status.phase is Phase.RUNNING
    cluster.finish(second, 0)
    cluster.job_controller()
    cluster.settle()
    assert cluster.status.phase is Phase.RUNNING  # SuccessCriteriaMet alone
    cluster.later(3)
    work(cluster)
    status = cluster.status
    assert status.phase is Phase.COMPLETE
    assert status.finished_at == cluster.now
    assert status.history[-1].exit_code == 0
    assert status.active_seconds == 3
    assert status.attempt_running_at is None
    assert not status.is_true(ConditionType.RUNNING)


def test_a_digest_that_says_done_completes_nothing() -> None:
    cluster = running()
    summary = RunSummaryDigest(status="completed")
    cluster.report(encode(Digest(attempt=1, exit_code=0, run_summary=summary), PROGRESS_LIMIT))
    work(cluster)
    assert cluster.status.phase is Phase.RUNNING


@pytest.mark.parametrize(
    ("target", "evaluated", "steps", "reason"),
    [
        (9000.0, "9100.5", 500, Reason.TARGET_REACHED),
        (9000.0, "8999.9", 500, Reason.TRAINING_COMPLETE),
        (9000.0, "9100.5", 1000, Reason.TRAINING_COMPLETE),
        (9000.0, None, 500, Reason.TRAINING_COMPLETE),
        (None, "9100.5", 500, Reason.TRAINING_COMPLETE),
    ],
)
def test_the_reason_tells_a_reached_target_from_a_finished_length(
    target: float | None, evaluated: str | None, steps: int, reason: Reason
) -> None:
    cluster = running(evaluator={"target": target})
    digest = Digest(
        attempt=1,
        exit_code=0,
        progress=Progress(env_steps=steps, target_env_steps=1000),
        run_summary=RunSummaryDigest(status="completed", evaluated_return=evaluated),
    )
    cluster.report(encode(digest, PROGRESS_LIMIT))
    cluster.finish(cluster.live_pods[0], 0)
    work(cluster)
    assert condition_reason(cluster, ConditionType.COMPLETE) == reason
    assert f"{steps} environment steps" in cluster.recorded[-1].message


def test_a_missed_threshold_completes_the_run_with_a_reason_of_its_own() -> None:
    cluster = running(evaluator={"threshold": 900.0})
    summary = RunSummaryDigest(
        status="completed", final_evaluated_return="812.5", threshold_missed=True
    )
    digest = Digest(
        attempt=1,
        exit_code=0,
        progress=Progress(env_steps=1250, target_env_steps=1250),
        run_summary=summary,
    )
    cluster.report(encode(digest, PROGRESS_LIMIT))
    cluster.finish(cluster.live_pods[0], 0)
    work(cluster)
    assert cluster.status.phase is Phase.COMPLETE
    assert condition_reason(cluster, ConditionType.COMPLETE) == Reason.THRESHOLD_MISSED
    words = "a mean return of 812.5, below evaluator.threshold 900"
    assert words in (cluster.status.message or "")
    assert cluster.status.run_summary == summary
    event = cluster.recorded[-1]
    assert (event.type, event.reason) == ("Warning", "ThresholdMissed")


@pytest.mark.parametrize("code", [2, 3])
def test_exit_2_and_3_fail_the_run_at_once_with_its_own_words(code: int) -> None:
    cluster = running(restart={"maxRestarts": 5})
    words = "training.total_env_steps: 5 is too few"
    message = encode(Digest(attempt=1, exit_code=code, message=words), TERMINATION_LIMIT)
    cluster.finish(cluster.live_pods[0], code, message=message)
    cluster.job_controller()
    cluster.settle()
    status = cluster.status
    assert (status.phase, status.restarts) == (Phase.FAILED, 0)
    assert condition_reason(cluster, ConditionType.FAILED) == Reason.NON_RETRYABLE_EXIT
    assert status.history[-1].exit_code == code
    assert words in cluster.recorded[-1].message
    assert status.finished_at == cluster.now


@pytest.mark.parametrize("code", [2, 3])
def test_failure_target_is_acted_on_though_peers_still_run(code: int) -> None:
    cluster = running(topology={"nodes": 2})
    cluster.finish(cluster.live_pods[1], code)
    cluster.job_controller()
    assert cluster.live_pods
    cluster.settle()
    assert cluster.status.phase is Phase.FAILED


def test_a_peers_exit_1_that_the_job_saw_first_does_not_hide_exit_3() -> None:
    cluster = running(topology={"nodes": 2})
    first, second = cluster.live_pods
    cluster.finish(first, 1)
    cluster.later(1)
    cluster.finish(second, 3)
    set_condition(cluster.job(), "FailureTarget", "BackoffLimitExceeded", "limit")
    cluster.settle()
    assert condition_reason(cluster, ConditionType.FAILED) == Reason.NON_RETRYABLE_EXIT


def test_only_a_policy_failure_names_a_rule() -> None:
    cluster = running()
    cluster.objects.pop(("Pod", cluster.pods[0]["metadata"]["name"]))
    words = "not by rule at index 1"
    set_condition(cluster.job(), "FailureTarget", "BackoffLimitExceeded", words)
    cluster.settle()
    assert cluster.status.phase is Phase.RESTARTING


def test_a_job_that_was_complete_after_all_outweighs_the_verdict_on_its_attempt() -> None:
    cluster = running(restart={"stallSeconds": 60})
    cluster.later(60)
    cluster.sync()
    cluster.apply(Decision(cluster.decide().status))
    assert cluster.status.history[-1].reason == Reason.STALLED
    set_condition(cluster.job(), "Complete", "CompletionsReached")
    cluster.settle()
    status = cluster.status
    assert status.phase is Phase.COMPLETE
    assert [record.reason for record in status.history] == [Reason.TRAINING_COMPLETE]
    assert not status.is_true(ConditionType.RESTARTING)
    assert status.next_attempt_at is None


def test_the_digest_speaks_where_the_pod_is_gone() -> None:
    cluster = running()
    cluster.finish(cluster.live_pods[0], 2)
    cluster.job_controller()
    cluster.objects.pop(("Pod", cluster.pods[0]["metadata"]["name"]))
    cluster.report(encode(Digest(attempt=1, exit_code=2, message="no GPU"), PROGRESS_LIMIT))
    cluster.settle()
    failed = cluster.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.reason, failed.message) == (Reason.NON_RETRYABLE_EXIT, "no GPU")
    assert cluster.status.history[-1].exit_code == 2


@pytest.mark.parametrize("name", ["sidecar", "init"])
def test_exit_codes_of_other_containers_follow_no_contract(name: str) -> None:
    cluster = running()
    pod = cluster.live_pods[0]
    cluster.finish(pod, 2)
    statuses = pod["status"].pop("containerStatuses")
    statuses[0]["name"] = name
    key = "initContainerStatuses" if name == "init" else "containerStatuses"
    pod["status"][key] = statuses
    set_condition(cluster.job(), "FailureTarget", "BackoffLimitExceeded")
    cluster.settle()
    assert cluster.status.phase is Phase.RESTARTING
    assert f"container {name} exit code 2" in cluster.status.history[-1].message


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            {"waiting": {"reason": "InvalidImageName", "message": "couldn't parse image"}},
            "InvalidImageName: couldn't parse image",
        ),
        ({"waiting": {"reason": "ErrImageNeverPull"}}, "ErrImageNeverPull"),
    ],
)
def test_a_container_that_cannot_start_for_good_fails_the_run(
    state: dict[str, Any], words: str
) -> None:
    cluster = FakeCluster()
    cluster.begin(running=False)
    cluster.pods[0]["status"]["containerStatuses"] = [{"name": "trainer", "state": state}]
    cluster.settle()
    assert condition_reason(cluster, ConditionType.FAILED) == Reason.CANNOT_START
    assert words in cluster.recorded[-1].message
    assert not cluster.jobs


def test_a_command_that_is_not_there_fails_the_run() -> None:
    cluster = running()
    words = 'exec: "drivetrain-launcher": executable file not found in $PATH'
    cluster.finish(cluster.live_pods[0], 128, "StartError", words)
    cluster.job_controller()
    cluster.settle()
    assert condition_reason(cluster, ConditionType.FAILED) == Reason.CANNOT_START
    assert words in cluster.recorded[-1].message


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "ErrImagePull", "ContainerCreating"])
def test_what_may_still_be_cured_is_waited_for(reason: str) -> None:
    cluster = FakeCluster()
    cluster.begin(running=False)
    waiting = {"name": "trainer", "state": {"waiting": {"reason": reason}}}
    cluster.pods[0]["status"]["containerStatuses"] = [waiting]
    cluster.settle()
    assert cluster.status.phase is Phase.PENDING


def finished(code: int) -> FakeCluster:
    cluster = running()
    cluster.finish(cluster.live_pods[0], code)
    work(cluster)
    assert cluster.status.phase in (Phase.COMPLETE, Phase.FAILED)
    return cluster


@pytest.mark.parametrize("code", [0, 2])
@pytest.mark.parametrize("then", ["suspend", "edit", "refuse", "delete job", "time", "fail"])
def test_the_end_is_sticky(code: int, then: str) -> None:
    cluster = finished(code)
    before = cluster.status
    if then == "suspend":
        cluster.edit(suspend=True)
    elif then == "edit":
        cluster.edit(seed=9, deadlines={"activeSeconds": 0})
    elif then == "refuse":
        cluster.edit(seed="nine")
    elif then == "delete job":
        del cluster.objects["Job", "walk-a1"]
    elif then == "time":
        cluster.later(10**7)
    else:
        set_condition(cluster.job(), "Failed", "BackoffLimitExceeded")
    decision = cluster.settle()
    assert not decision.actions
    generation = cluster.run["metadata"]["generation"]
    assert cluster.status == before.model_copy(update={"observed_generation": generation})


def test_oom_killed_with_code_0_is_done() -> None:
    """A child was killed, the rank went on to its end: the code is read first."""
    cluster = running()
    cluster.finish(cluster.live_pods[0], 0, "OOMKilled")
    work(cluster)
    assert cluster.status.phase is Phase.COMPLETE


@pytest.mark.parametrize("code", [2, 3])
def test_oom_killed_with_code_2_or_3_is_final(code: int) -> None:
    cluster = running()
    cluster.finish(cluster.live_pods[0], code, "OOMKilled")
    work(cluster)
    assert condition_reason(cluster, ConditionType.FAILED) == Reason.NON_RETRYABLE_EXIT
