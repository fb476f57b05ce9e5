"""How attempts end on a real API server with its real Job controller, and what is made of it.

No operator runs: each look at the objects is reconciled, and its status written back.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.kubernetes.api import Api, Object, wait_for

from drivetrain_api import labels
from drivetrain_api.status import ConditionType, Phase, Reason, TrainingRunStatus
from drivetrain_operator.manifests.job import FailureRule
from drivetrain_operator.reconcile.decision import Create, Decision
from drivetrain_operator.reconcile.engine import reconcile
from drivetrain_operator.reconcile.snapshot import Observed, RunView
from drivetrain_operator.reconcile.views import (
    ConfigMapView,
    JobConditionType,
    JobEvent,
    JobView,
    PodView,
)

DRIVETRAIN = "drivetrain.dev/v1alpha1"
RUN = "walk"


class Attempt:
    """A run of two pods whose attempt is followed by hand."""

    def __init__(self, api: Api, namespace: str, **spec: Any) -> None:
        self.api, self.namespace = api, namespace
        run = {
            "apiVersion": DRIVETRAIN,
            "kind": "TrainingRun",
            "metadata": {"name": RUN},
            "spec": {
                "algo": {"name": "sac"},
                "task": {"name": "hopper"},
                "topology": {"nodes": 2},
            }
            | spec,
        }
        api.create(run, namespace=namespace)
        for _ in range(2):  # the number first, then its children
            for action in self.look().actions:
                if isinstance(action, Create):
                    api.create(dict(action.manifest), namespace=namespace)

    # --- what the operator sees and writes --------------------------------------------------

    def observed(self) -> Observed:
        run = self.api.get(DRIVETRAIN, "TrainingRun", RUN, self.namespace)
        mine = {"labelSelector": f"{labels.RUN}={RUN}"}
        jobs = self.api.objects("batch/v1", "Job", self.namespace, **mine)
        maps = self.api.objects("v1", "ConfigMap", self.namespace, **mine)
        events = self.api.objects(
            "v1", "Event", self.namespace, fieldSelector="involvedObject.kind=Job"
        )
        return Observed(
            run=RunView.from_object(run),
            jobs=tuple(map(JobView.from_object, jobs)),
            pods=tuple(map(PodView.from_object, self.pods())),
            config_maps=tuple(map(ConfigMapView.from_object, maps)),
            job_events=tuple(map(JobEvent.from_object, events)),
        )

    def look(self) -> Decision:
        """A fresh look, with its status written; the rest of the decision is the caller's."""
        decision = reconcile(self.observed(), datetime.now(UTC))
        status = {
            **dict.fromkeys(decision.status.model_dump(by_alias=True)),  # null takes a field away
            **decision.status.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        path = (DRIVETRAIN, "TrainingRun", RUN, {"status": status}, self.namespace)
        written = self.api.patch(*path, subresource="status")
        again = TrainingRunStatus.model_validate(written["status"])
        kept = {c.type: c for c in decision.status.conditions}
        assert {c.type: c for c in again.conditions} == kept
        return decision

    def until(self, reason: Reason) -> TrainingRunStatus:
        """Looks until the attempt is over for that reason; the status then."""

        def ended() -> TrainingRunStatus | None:
            status = self.look().status
            return status if status.history else None

        status = wait_for(ended, "the end of the attempt")
        assert status.history[-1].reason == reason, status.history
        return status

    # --- what happens to it -----------------------------------------------------------------

    def pods(self) -> list[Object]:
        found = self.api.objects("v1", "Pod", self.namespace, labelSelector=f"{labels.RUN}={RUN}")
        index = "batch.kubernetes.io/job-completion-index"
        return sorted(found, key=lambda pod: str(pod["metadata"]["annotations"][index]))

    def all_terminate(self) -> bool:
        """Whether each pod was told to end."""
        return all("deletionTimestamp" in pod["metadata"] for pod in self.pods())

    def job(self) -> JobView:
        return JobView.from_object(self.api.get("batch/v1", "Job", f"{RUN}-a1", self.namespace))

    def run_pods(self) -> list[Object]:
        """Bind both pods and let them run, as a scheduler and a kubelet would."""

        def both() -> list[Object] | None:
            alive = [pod for pod in self.pods() if "deletionTimestamp" not in pod["metadata"]]
            return alive if len(alive) == 2 else None

        found = wait_for(both, "two pods")
        for pod in found:
            name = pod["metadata"]["name"]
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"},
            }
            self.api.request("POST", self._path(name, "binding"), binding)
            self.set(pod, "Running", {"running": {"startedAt": "2026-03-01T12:00:00Z"}})
        wait_for(lambda: self.look().status.phase is Phase.RUNNING, "phase Running")
        return found

    def _path(self, pod: str, subresource: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod}/{subresource}"

    def set(self, pod: Object, phase: str, state: Object, **fields: Any) -> None:
        """What a kubelet reports."""
        status = {
            "phase": phase,
            "containerStatuses": [
                {
                    "name": "trainer",
                    "image": "none",
                    "imageID": "",
                    "ready": phase == "Running",
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        name = pod["metadata"]["name"]
        change = {"status": status | fields}
        self.api.patch("v1", "Pod", name, change, self.namespace, subresource="status")

    def exit(self, pod: Object, code: int, reason: str = "Error", **fields: Any) -> None:
        ended = {"exitCode": code, "reason": reason, "finishedAt": "2026-03-01T12:10:00Z"}
        self.set(pod, "Failed" if code else "Succeeded", {"terminated": ended}, **fields)

    def evict(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": self.namespace},
        }
        self.api.request("POST", self._path(name, "eviction"), eviction)

    def reap(self, pod: Object) -> None:
        """The kubelet takes the object of a pod that ended away."""
        self.api.delete("v1", "Pod", pod["metadata"]["name"], self.namespace, grace_s=0)

    def verdict(self) -> str:
        """Wait for the Job's; its reason, and the rule that it names."""

        def ending() -> JobView | None:
            job = self.job()
            return job if job.ending else None

        first = wait_for(ending, "the Job's verdict").conditions[0]
        return f"{first.reason}: {first.message}"


@pytest.fixture
def attempt(api: Api, namespace: str) -> Attempt:
    return Attempt(api, namespace)


@pytest.mark.parametrize(
    ("code", "container_reason", "rule", "reason", "phase"),
    [
        (2, "Error", FailureRule.FOR_GOOD, Reason.NON_RETRYABLE_EXIT, Phase.FAILED),
        (3, "Error", FailureRule.FOR_GOOD, Reason.NON_RETRYABLE_EXIT, Phase.FAILED),
        (1, "Error", None, Reason.ATTEMPT_FAILED, Phase.RESTARTING),
        (137, "OOMKilled", None, Reason.OOM_KILLED, Phase.RESTARTING),
        (75, "OOMKilled", FailureRule.STOPPED, Reason.OOM_KILLED, Phase.RESTARTING),
        (75, "Error", FailureRule.STOPPED, Reason.ATTEMPT_FAILED, Phase.RESTARTING),
    ],
)
def test_an_exit_code_ends_the_attempt_as_the_contract_says(  # noqa: PLR0917 - a table
    attempt: Attempt,
    code: int,
    container_reason: str,
    rule: FailureRule | None,
    reason: Reason,
    phase: Phase,
) -> None:
    first, _ = attempt.run_pods()
    attempt.exit(first, code, container_reason)
    verdict = attempt.verdict()
    assert verdict.startswith("BackoffLimitExceeded" if rule is None else "PodFailurePolicy")
    if rule is not None:
        assert f"rule at index {rule.value}" in verdict
    status = attempt.until(reason)
    assert (status.phase, status.history[-1].counted) == (phase, True)
    assert status.history[-1].exit_code == code


def test_an_eviction_is_seen_at_once_and_does_not_count(attempt: Attempt) -> None:
    first, _ = attempt.run_pods()
    attempt.evict(first)
    status = attempt.until(Reason.DISRUPTED)
    assert (status.phase, status.restarts, status.disruptions) == (Phase.RESTARTING, 0, 1)
    assert "EvictionByEvictionAPI" in status.history[-1].message


def test_an_eviction_that_nobody_saw_is_told_by_the_jobs_rule(attempt: Attempt) -> None:
    first, second = attempt.run_pods()
    attempt.evict(first)
    attempt.exit(first, 75)
    verdict = attempt.verdict()
    assert f"rule at index {FailureRule.DISRUPTED.value}" in verdict
    for pod in (first, second):
        attempt.reap(pod)
    wait_for(lambda: not attempt.pods(), "both pods gone")
    assert attempt.until(Reason.DISRUPTED).restarts == 0


def test_a_pod_that_somebody_deleted_counts(attempt: Attempt) -> None:
    first, _ = attempt.run_pods()
    attempt.api.delete("v1", "Pod", first["metadata"]["name"], attempt.namespace)
    attempt.exit(first, 75)
    assert f"rule at index {FailureRule.STOPPED.value}" in attempt.verdict()
    assert attempt.until(Reason.ATTEMPT_FAILED).restarts == 1


def test_a_pod_over_its_own_limits_counts_and_says_so(attempt: Attempt) -> None:
    first, _ = attempt.run_pods()
    words = 'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi".'
    attempt.exit(first, 75, reason="Error", message=words)
    name = first["metadata"]["name"]
    change = {"status": {"reason": "Evicted"}}
    attempt.api.patch("v1", "Pod", name, change, attempt.namespace, subresource="status")
    attempt.verdict()
    status = attempt.until(Reason.ATTEMPT_FAILED)
    assert words in status.history[-1].message


def test_both_done_is_complete(attempt: Attempt) -> None:
    for pod in attempt.run_pods():
        attempt.exit(pod, 0, "Completed")
    status = attempt.until(Reason.TRAINING_COMPLETE)
    assert (status.phase, status.message) == (Phase.COMPLETE, "attempt 1 is done")


def test_a_suspension_as_kueues_is_a_segment_of_the_same_attempt(api: Api, namespace: str) -> None:
    attempt = Attempt(api, namespace, queueName="lab")
    name = f"{RUN}-a1"

    def suspend(*, held: bool) -> None:
        api.patch("batch/v1", "Job", name, {"spec": {"suspend": held}}, namespace)

    def waits() -> bool:
        scheduled = attempt.look().status.condition(ConditionType.SCHEDULED)
        return scheduled is not None and scheduled.reason == Reason.QUEUED

    wait_for(waits, "the wait in the queue")
    suspend(held=False)
    first = attempt.run_pods()
    started = attempt.job().started_at
    suspend(held=True)
    wait_for(lambda: attempt.job().condition(JobConditionType.SUSPENDED), "the hold")
    wait_for(attempt.all_terminate, "both pods to be told to end")
    for pod in first:
        attempt.exit(pod, 75)
        attempt.reap(pod)
    wait_for(lambda: not attempt.pods(), "the old pods gone")
    status = attempt.look().status
    assert (status.phase, status.attempt, status.history) == (Phase.PENDING, 1, ())
    assert not attempt.look().actions
    assert not attempt.job().ending
    # Kueue drops startTime before it restores the template.
    cleared = {"status": {"startTime": None}}
    api.patch("batch/v1", "Job", name, cleared, namespace, subresource="status")
    assert attempt.job().started_at is None
    suspend(held=False)
    attempt.run_pods()
    status = attempt.look().status
    assert (status.phase, status.attempt, status.restarts) == (Phase.RUNNING, 1, 0)
    assert started is not None


def test_a_missing_account_shows_in_events_alone(api: Api, namespace: str) -> None:
    attempt = Attempt(api, namespace, queueName="lab")
    api.delete("v1", "ServiceAccount", f"{RUN}-trainer", namespace)
    released = {"spec": {"suspend": False}}
    api.patch("batch/v1", "Job", f"{RUN}-a1", released, namespace)

    def told() -> str | None:
        scheduled = attempt.look().status.condition(ConditionType.SCHEDULED)
        refused = scheduled is not None and scheduled.reason == Reason.POD_REFUSED
        return scheduled.message if scheduled is not None and refused else None

    assert "walk-trainer" in wait_for(told, "the refusal")
