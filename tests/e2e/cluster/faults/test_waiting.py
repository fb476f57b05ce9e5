"""Pods that never run: the status says why in the cluster's own words, and a deadline ends it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.e2e.cluster.faults.trial import NAME, Trial, condition_of
from tests.support.kubernetes.node_extras import UNBINDABLE_CLASS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ABSENT = "127.0.0.1:1/absent:1"
"""Nobody listens there."""


@pytest.mark.parametrize(
    ("sections", "condition", "reason", "words"),
    [
        pytest.param(
            {"image": ABSENT}, "Running", "ImagePullFailed", ABSENT, id="image that is nowhere"
        ),
        pytest.param(
            {"storage": {"size": "1Gi", "storageClassName": UNBINDABLE_CLASS}},
            "Scheduled",
            "VolumePending",
            f"(claim {NAME}-storage)",
            id="claim that never binds",
        ),
    ],
)
def test_what_hinders_a_pod_is_told_until_the_deadline(
    trial: Trial, sections: dict[str, Any], condition: str, reason: str, words: str
) -> None:
    trial.start(**sections, deadlines={"pendingSeconds": 20})

    status = trial.tells(condition, "False", reason, words)
    assert status["phase"] == "Pending", status
    assert words in status["message"], status

    status = trial.tells("Failed", "True", "PendingDeadlineExceeded", words)
    assert status["phase"] == "Failed", status
    assert words in status["message"], status
    (record,) = status["history"]
    assert (record["attempt"], record["reason"]) == (1, "PendingDeadlineExceeded"), status
    assert (status["restarts"], status["disruptions"]) == (0, 0), status
    trial.wait(lambda: not trial.children_of_kind("Pod"), "end of the pod")
    trial.witness.check()


def test_a_quota_that_is_too_small_is_told_and_its_rise_is_enough(trial: Trial) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"limits.memory": "1Gi"}},
    }
    trial.api.apply(quota, namespace=trial.namespace)
    trial.start()

    status = trial.tells("Scheduled", "False", "QuotaExceeded", "exceeded quota: small")
    assert status["phase"] == "Pending", status
    assert trial.children_of_kind("Pod") == []

    quota["spec"] = {"hard": {"limits.memory": "8Gi"}}
    trial.api.apply(quota, namespace=trial.namespace)

    status = trial.sees(lambda s: s["phase"] == "Running", "phase Running")
    assert (status["attempt"], status["restarts"]) == (1, 0), status
    assert condition_of(status, "Scheduled")["status"] == "True", status
    trial.witness.check()
