"""What keeps pods from running is told in the status, in the words of who refuses them."""

from __future__ import annotations

import pytest
from tests.cluster.faults.lab import Lab
from tests.support.kubernetes.api import Object
from tests.support.kubernetes.simulated_kubelet import Plan, runs_on

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "small"},
    "spec": {"hard": {"pods": "1"}},
}
HOST_NETWORK = {"spec": {"hostNetwork": True}}
UNBOUND = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."


def never_starts(_: str, __: int) -> Plan:
    return Plan(starts=False)


def told(status: Object, type_: str) -> tuple[str, str]:
    found: Object = next((c for c in status.get("conditions", ()) if c["type"] == type_), {})
    return found.get("reason", ""), found.get("message", "")


def until_told(lab: Lab, name: str, type_: str, reason: str) -> str:
    status = lab.until(name, lambda s: told(s, type_)[0] == reason, f"{type_}: {reason}")
    return told(status, type_)[1]


def test_a_quota_that_is_too_small_then_large_enough(own_lab: Lab) -> None:
    """One pod of two is made; neither trains alone, and the run goes on once both may be."""
    lab = own_lab
    lab.api.create(QUOTA, namespace=lab.namespace)
    lab.create_with(runs_on, "wide", topology={"nodes": 2}, deadlines={"pendingSeconds": 600})
    words = until_told(lab, "wide", "Scheduled", "QuotaExceeded")
    assert "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1" in words
    assert lab.status("wide")["phase"] == "Pending"
    larger = {"spec": {"hard": {"pods": "2"}}}
    lab.api.patch("v1", "ResourceQuota", "small", larger, lab.namespace)
    status = lab.phase("wide", "Running")
    assert (status["attempt"], status["restarts"]) == (1, 0)


def test_a_quota_that_stays_too_small_ends_the_run_with_its_words(own_lab: Lab) -> None:
    lab = own_lab
    none = QUOTA | {"spec": {"hard": {"pods": "0"}}}
    lab.api.create(none, namespace=lab.namespace)
    lab.create("none", deadlines={"pendingSeconds": 3})
    status = lab.phase("none", "Failed")
    assert told(status, "Failed")[0] == "PendingDeadlineExceeded"
    assert "exceeded quota: small" in status["message"]
    assert "not running after 3 s" in status["message"]


def test_pod_security_that_refuses_a_pod(own_lab: Lab) -> None:
    lab = own_lab
    labelled = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    lab.api.patch("v1", "Namespace", lab.namespace, labelled)
    lab.create("open", podTemplate=HOST_NETWORK)
    lab.create("plain")
    words = until_told(lab, "open", "Scheduled", "PodSecurityViolation")
    assert 'violates PodSecurity "restricted:latest"' in words
    assert "host namespaces (hostNetwork=true)" in words
    lab.completes("plain")  # what runs by itself fits the strictest level
    assert "PodSecurityViolation" in {e["reason"] for e in events(lab, "open")}


def events(lab: Lab, name: str) -> list[Object]:
    return lab.api.objects(
        "v1", "Event", lab.namespace, fieldSelector=f"involvedObject.name={name}"
    )


def unscheduled(lab: Lab, name: str, words: str) -> None:
    """What a scheduler writes."""
    pods = lab.api.objects("v1", "Pod", lab.namespace, labelSelector=f"drivetrain.dev/run={name}")
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": words,
    }
    for pod in pods:
        change = {"status": {"conditions": [condition]}}
        lab.api.patch(
            "v1", "Pod", pod["metadata"]["name"], change, lab.namespace, subresource="status"
        )


@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        ("unbound", UNBOUND, "VolumePending"),
        ("no-room", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "Unschedulable"),
    ],
)
def test_a_pod_that_is_never_scheduled_ends_the_run_at_its_deadline(
    lab: Lab, name: str, words: str, reason: str
) -> None:
    lab.create_with(never_starts, name, storage={"size": "1Gi"}, deadlines={"pendingSeconds": 600})
    lab.until(name, lambda _: "Pod" in {k for k, _ in lab.children(name)}, "pod")
    unscheduled(lab, name, words)
    message = until_told(lab, name, "Scheduled", reason)
    assert words in message
    assert reason != "VolumePending" or f"claim {name}-storage" in message
    lab.change(name, deadlines={"pendingSeconds": 1})
    status = lab.phase(name, "Failed")
    assert told(status, "Failed")[0] == "PendingDeadlineExceeded"
    assert words in status["message"]
    lab.until(name, lambda _: "Pod" not in {k for k, _ in lab.children(name)}, "end of the pod")
