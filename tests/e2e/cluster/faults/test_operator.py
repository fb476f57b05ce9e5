"""The operator dies, or is not there: what runs goes on, and what is deleted goes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster.faults.lab import namespace_of
from tests.e2e.cluster.conftest import Release
from tests.e2e.cluster.faults.test_waiting import ABSENT
from tests.e2e.cluster.faults.trial import NAME, Trial, spec
from tests.support.kubernetes.api import Object
from tests.support.kubernetes.pod_processes import PodProcesses

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


class Operator:
    """The Deployment of the release, and its pods."""

    def __init__(self, trial: Trial, release: Release) -> None:
        self._trial = trial
        self._release = release
        self._namespace = release.namespace
        (found,) = trial.api.objects("apps/v1", "Deployment", self._namespace)
        self._name = found["metadata"]["name"]
        self._labels = found["spec"]["selector"]["matchLabels"]

    def pods(self) -> list[Object]:
        selector = ",".join(f"{key}={value}" for key, value in self._labels.items())
        return self._trial.api.objects("v1", "Pod", self._namespace, labelSelector=selector)

    def scale(self, replicas: int) -> None:
        """And wait until it is so."""
        self._trial.api.patch(
            *("apps/v1", "Deployment", self._name),
            {"spec": {"replicas": replicas}},
            self._namespace,
        )
        self._trial.wait(lambda: self._ready() == len(self.pods()) == replicas, "replicas")

    def _ready(self) -> int:
        conditions = [c for pod in self.pods() for c in pod["status"].get("conditions", ())]
        return sum(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def kill(self) -> None:
        """SIGKILL, and wait until its container runs anew."""
        (pod,) = self.pods()
        before = _starts(pod)
        PodProcesses(self._trial.node.slot, pod["metadata"]["uid"]).launcher().kill()
        self._trial.wait(
            lambda: any(_starts(p) > before for p in self.pods()) and self._ready() == 1,
            "operator that is back",
        )


def _starts(pod: Object) -> int:
    return sum(c["restartCount"] for c in pod["status"].get("containerStatuses", ()))


@pytest.fixture
def operator(trial: Trial, release: Release) -> Iterator[Operator]:
    made = Operator(trial, release)
    yield made
    made.scale(1)


def test_a_killed_operator_goes_on_with_the_attempt_that_runs(
    trial: Trial, operator: Operator
) -> None:
    trial.start()
    trial.trains()
    job = trial.status(NAME)["jobUid"]
    pod = trial.pod(1)["metadata"]["uid"]

    operator.kill()

    reached = trial.steps(1)[-1]
    status = trial.sees(lambda s: s["progress"]["envSteps"] > reached, "later figures")
    assert (status["phase"], status["attempt"], status["jobUid"]) == ("Running", 1, job), status
    assert (status["restarts"], status["disruptions"]) == (0, 0), status
    assert trial.pod(1)["metadata"]["uid"] == pod
    assert trial.witness.jobs_made(NAME, 1) == 1
    trial.witness.check()


def test_what_is_deleted_goes_without_an_operator(trial: Trial, operator: Operator) -> None:
    with namespace_of(trial.api) as other:
        trial.api.create(
            {
                "apiVersion": "drivetrain.dev/v1alpha1",
                "kind": "TrainingRun",
                "metadata": {"name": "other"},
                "spec": spec(image=ABSENT),
            },
            namespace=other,
        )
        trial.start()
        trial.trains()
        trial.wait(lambda: trial.api.objects("v1", "Pod", other), "pod of the other run")
        operator.scale(0)

        trial.delete(NAME)
        trial.api.delete("v1", "Namespace", other)

        trial.wait(lambda: not trial.children(NAME), "end of all that the run owned")
        assert trial.run(NAME) is None
        trial.wait(lambda: trial.api.find("v1", "Namespace", other) is None, "namespace gone")
