"""The API server's own words about a `podTemplate`, led back to the spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.kubernetes.api import Api, wait_for
from tests.support.kubernetes.connection import connected

from drivetrain_api.base import API_VERSION, KIND
from drivetrain_operator.cluster.dry_run import JobDryRun
from drivetrain_operator.manifests.settings import Settings
from drivetrain_operator.reconcile.snapshot import RunView

pytestmark = pytest.mark.cluster


def view(namespace: str, **spec: Any) -> RunView:
    return RunView.from_object(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": "walk", "namespace": namespace, "uid": "run-1", "generation": 1},
            "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}} | spec,
        }
    )


def template(**spec: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": spec}}


def asked(kubeconfig: Path, run: RunView) -> list[str]:
    async def act(cluster: Any) -> list[str]:
        return [str(found) for found in await JobDryRun(cluster).violations(run, Settings())]

    return connected(kubeconfig, act)


TRAINER = "pod_template.spec.containers[0]"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, []),
        (template(nodeSelector={"a": "b"}, priorityClassName="high"), []),
        (
            template(
                nodeSelecter={"a": "b"},
                containers=[{"name": "trainer", "resorces": {"limits": {}}}],
            ),
            [f"{TRAINER}.resorces: unknown field", "pod_template.spec.nodeSelecter: unknown field"],
        ),
        (
            template(priorityClassName=5),
            ["pod_template.spec.priorityClassName: must be of type string; got number"],
        ),
        (
            template(tolerations=[{"key": "a", "effect": "NoExecute", "tolerationSeconds": "x"}]),
            ["pod_template.spec.tolerations.tolerationSeconds: must be of type int64; got string"],
        ),
        (
            template(
                containers=[
                    {
                        "name": "trainer",
                        "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
                    }
                ]
            ),
            [
                (
                    f"{TRAINER}.resources.requests: "
                    'Invalid value: "2": must be less than or equal to cpu limit of 1'
                )
            ],
        ),
        (
            # Second in the merged template, first in the user's.
            template(containers=[{"name": "side"}]),
            [f"{TRAINER}.image: Required value"],
        ),
        (
            template(containers=[{"name": "trainer", "resources": {"limits": {"cpu": "1x"}}}]),
            [
                (
                    "pod_template: quantities must match the regular expression "
                    "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                )
            ],
        ),
        (
            template(dnsPolicy="Foo"),
            [
                (
                    'pod_template.spec.dnsPolicy: Unsupported value: "Foo": supported values: '
                    '"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"'
                )
            ],
        ),
        (
            {"accelerator": {"gpusPerNode": 1, "resourceName": "gpu"}},
            [
                (
                    'accelerator.resource_name: Invalid value: "gpu": '
                    "must be a standard resource type or fully qualified"
                ),
                (
                    'accelerator.resource_name: Invalid value: "gpu": '
                    "must be a standard resource for containers"
                ),
            ],
        ),
    ],
    ids=[
        "plain",
        "valid overlay",
        "misspelt",
        "wrong type",
        "wrong type in a list",
        "limit below request",
        "required value",
        "quantity",
        "enum",
        "accelerator",
    ],
)
def test_the_server_says_what_is_wrong(
    api: Api, kubeconfig: Path, namespace: str, spec: dict[str, Any], words: list[str]
) -> None:
    assert asked(kubeconfig, view(namespace, **spec)) == words
    assert api.objects("batch/v1", "Job", namespace) == []


def test_a_policy_and_a_quota_say_nothing_about_the_spec(
    api: Api, kubeconfig: Path, namespace: str
) -> None:
    policy = {"apiVersion": "admissionregistration.k8s.io/v1"}
    rule = {
        "apiGroups": ["batch"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["jobs"],
    }
    own = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    api.apply(
        {
            **policy,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": namespace},
            "spec": {
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": own},
                "validations": [{"expression": "false", "message": "no Jobs here"}],
            },
        },
        {
            **policy,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": namespace},
            "spec": {"policyName": namespace, "validationActions": ["Deny"]},
        },
    )
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "probe"},
        "spec": {
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}
            }
        },
    }
    try:
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        wait_for(lambda: api.ask("POST", path, job, dryRun="All").code == 422, "policy in force")
        assert asked(kubeconfig, view(namespace)) == []
        bad = view(namespace, **template(dnsPolicy="Foo"))
        assert asked(kubeconfig, bad)[0].startswith("pod_template.spec.dnsPolicy")
    finally:
        group = policy["apiVersion"]
        api.delete(group, "ValidatingAdmissionPolicyBinding", namespace)
        api.delete(group, "ValidatingAdmissionPolicy", namespace)


def test_a_quota_says_nothing_about_the_spec(api: Api, kubeconfig: Path, namespace: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"count/jobs.batch": "0"}},
    }
    api.create(quota, namespace=namespace)
    wait_for(
        lambda: api.get("v1", "ResourceQuota", "none", namespace).get("status", {}).get("used"),
        "counted quota",
    )
    assert asked(kubeconfig, view(namespace)) == []
