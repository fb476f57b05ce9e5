from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from drivetrain_operator.local import job_controller
from drivetrain_operator.local import pod_object as pods_

NAME = "default/j-0"
MATCHING = "matching FailJob rule at index"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
RULES = [
    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    {
        "action": "FailJob",
        "onExitCodes": {"containerName": "trainer", "operator": "In", "values": [2, 3]},
    },
    {"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [1, 4]}},
]


def job(nodes: int = 2, **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "trainer"}]}}
    return {
        "metadata": {"name": "j", "namespace": "default", "uid": "u"},
        "spec": {
            "completions": nodes,
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": RULES},
            "template": template,
            **spec,
        },
    }


def pod(index: int, code: int | None = None, disruption: tuple[str, str] | None = None) -> Any:
    new = pods_.started(pods_.new_pod(job(), index, NOW), NOW)
    new["metadata"]["uid"] = f"p{index}"
    if code is None:
        return new
    return pods_.ended(new, exit_code=code, reason="", message="", now=NOW, disruption=disruption)


def held(step: job_controller.JobStep) -> dict[str, str]:
    return {c["type"]: c["message"] for c in step.status["conditions"] if c["status"] == "True"}


def test_a_new_job_makes_its_pods() -> None:
    step = job_controller.step(job(), [], NOW)
    assert step.create == (0, 1)
    assert step.status["startTime"] == "2030-01-01T00:00:00Z"
    assert job_controller.step(job(), [pod(0)], NOW).create == (1,)


def test_pods_carry_their_index_and_their_job() -> None:
    new = pods_.new_pod(job(), 1, NOW)
    assert new["metadata"]["name"] == "j-1"
    assert pods_.index_of(new) == 1
    assert new["metadata"]["labels"]["a"] == "b"
    assert new["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert not pods_.is_counted(new)


@pytest.mark.parametrize(
    ("failed", "message"),
    [
        (pod(0, 1), "Job has reached the specified backoff limit"),
        (pod(0, 4), "Job has reached the specified backoff limit"),
        (
            pod(0, 2),
            f"Container trainer for pod {NAME} failed with exit code 2 {MATCHING} 1",
        ),
        (
            pod(0, 2, ("Evicted", "")),
            f"Pod {NAME} has condition DisruptionTarget {MATCHING} 0",
        ),
        (pod(0, 7), "Job has reached the specified backoff limit"),
    ],
)
def test_the_first_rule_that_matches_decides(failed: Any, message: str) -> None:
    step = job_controller.step(job(), [failed, pod(1)], NOW)
    assert held(step) == {"FailureTarget": message}
    assert step.delete == ("p1",)
    assert step.count == ("p0",)
    assert step.create == ()
    assert step.status["failed"] == 1


def test_failed_follows_once_every_pod_is_terminal() -> None:
    first = job_controller.step(job(), [pod(0, 1), pod(1)], NOW)
    ending = pods_.deleting(pod(1), 5, NOW)
    after = {**job(), "status": first.status}
    waiting = job_controller.step(after, [pods_.counted(pod(0, 1)), ending], NOW)
    assert "Failed" not in held(waiting)
    assert (waiting.delete, waiting.status["terminating"]) == ((), 1)
    last = job_controller.step(
        {**job(), "status": waiting.status}, [pods_.counted(pod(0, 1)), pod(1, 75)], NOW
    )
    assert held(last)["Failed"] == held(last)["FailureTarget"]
    assert last.status["failed"] == 2


def test_a_job_completes_when_all_indexes_have_succeeded() -> None:
    half = job_controller.step(job(), [pod(0, 0), pod(1)], NOW)
    assert held(half) == {}
    assert half.status["completedIndexes"] == "0"
    whole = job_controller.step({**job(), "status": half.status}, [pod(1, 0)], NOW)
    assert set(held(whole)) == {"SuccessCriteriaMet", "Complete"}
    assert whole.status["completedIndexes"] == "0,1"
    assert whole.status["completionTime"] == "2030-01-01T00:00:00Z"
    assert whole.create == ()


def test_a_finished_job_rests() -> None:
    status = job_controller.step(job(1), [pod(0, 0)], NOW).status
    over = {**job(1), "status": status}
    later = NOW.replace(hour=5)
    again = job_controller.step(over, [pods_.counted(pod(0, 0))], later)
    assert again == job_controller.JobStep(status=status)


def test_a_suspended_job_deletes_and_blames_nobody() -> None:
    step = job_controller.step(job(suspend=True), [pod(0), pod(1, 1)], NOW)
    assert held(step) == {"Suspended": "Job suspended"}
    assert (step.delete, step.count) == (("p0",), ("p1",))
    assert step.status["failed"] == 0
    assert "startTime" not in step.status
    resumed = job_controller.step({**job(), "status": step.status}, [], NOW)
    assert held(resumed) == {}
    assert resumed.create == (0, 1)


def test_pods_are_replaced_only_once_they_are_gone() -> None:
    ending = pods_.deleting(pod(0), 5, NOW)
    assert job_controller.step(job(), [ending, pod(1)], NOW).create == ()
