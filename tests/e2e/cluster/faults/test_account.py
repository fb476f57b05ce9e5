"""What a pod can do with its own account: read and patch its one ConfigMap, nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.e2e.cluster.faults.trial import NAME, Trial
from tests.support.kubernetes.kubectl import Kubectl

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PROGRESS = f"configmaps/{NAME}-progress"
SCRIPT = """
import json, ssl, sys, urllib.error, urllib.request
mount = "/var/run/secrets/kubernetes.io/serviceaccount/"
token = open(mount + "token").read()
context = ssl.create_default_context(cafile=mount + "ca.crt")
answers = []
for method, path, body in json.load(sys.stdin):
    data = None if body is None else json.dumps(body).encode()
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Authorization": "Bearer " + token, "Content-Type": kind}
    url = "https://kubernetes.default.svc" + path
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            answers.append((answer.status, ""))
    except urllib.error.HTTPError as error:
        answers.append((error.code, json.loads(error.read())["message"]))
print(json.dumps(answers))
"""
Request = tuple[str, str, Any]


def requests_of(namespace: str) -> dict[str, Request]:
    """Every one is refused, by what is its key."""
    core, runs = f"/api/v1/namespaces/{namespace}", f"namespaces/{namespace}/trainingruns/{NAME}"
    group = "/apis/drivetrain.dev/v1alpha1"
    return {
        "ConfigMaps of the namespace": ("GET", f"{core}/configmaps", None),
        "the attempt's ConfigMap": ("GET", f"{core}/configmaps/{NAME}-a1", None),
        "a ConfigMap elsewhere": ("GET", "/api/v1/namespaces/default/configmaps", None),
        "Secrets": ("GET", f"{core}/secrets", None),
        "pods": ("GET", f"{core}/pods", None),
        "its own end": ("DELETE", f"{core}/pods/{NAME}-a1-0", None),
        "Jobs": ("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs", None),
        "its own run": ("GET", f"{group}/{runs}", None),
        "its own status": ("PATCH", f"{group}/{runs}/status", {"status": {"phase": "Complete"}}),
        "nodes": ("GET", "/api/v1/nodes", None),
        "deletion of its ConfigMap": ("DELETE", f"{core}/{PROGRESS}", None),
        "a token": (
            "POST",
            f"{core}/serviceaccounts/{NAME}-trainer/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        ),
        "rights": (
            "PATCH",
            f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{NAME}-trainer",
            {"rules": []},
        ),
    }


ABUSES = {
    "a finalizer": {"metadata": {"finalizers": ["example.com/held"]}},
    "another label": {"metadata": {"labels": {"drivetrain.dev/run": "other"}}},
    "no owner": {"metadata": {"ownerReferences": []}},
    "immutable": {"immutable": True},
    "another key": {"data": {"more": "x"}},
    "5 KiB": {"data": {"progress": "x" * 5120}},
}
"""Patches of the one ConfigMap that the admission policy refuses."""


def test_a_pod_reaches_its_progress_and_nothing_else(trial: Trial, namespace: Kubectl) -> None:
    trial.start()
    trial.trains()
    pod = trial.pod(1)["metadata"]["name"]
    core = f"/api/v1/namespaces/{trial.namespace}"
    refused = requests_of(trial.namespace)

    def ask(*requests: Request) -> list[tuple[int, str]]:
        command = ("exec", "--stdin", pod, "--", "python3", "-c", SCRIPT)
        answers: list[tuple[int, str]] = json.loads(namespace(*command, stdin=json.dumps(requests)))
        return answers

    allowed = ask(("GET", f"{core}/{PROGRESS}", None), ("PATCH", f"{core}/{PROGRESS}", {}))
    assert [code for code, _ in allowed] == [200, 200], allowed
    for what, (code, words) in zip(refused, ask(*refused.values()), strict=True):
        assert code == 403, (what, words)
        assert f"system:serviceaccount:{trial.namespace}:{NAME}-trainer" in words, what
    patches = [("PATCH", f"{core}/{PROGRESS}", change) for change in ABUSES.values()]
    for what, (code, words) in zip(ABUSES, ask(*patches), strict=True):
        assert code in (403, 422), (what, words)
        assert "ValidatingAdmissionPolicy" in words, (what, words)
    status = trial.status(NAME)
    assert (status["phase"], status["attempt"]) == ("Running", 1), status
