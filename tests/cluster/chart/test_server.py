"""A real API server takes every object, strictly, and PodSecurity lets every pod in."""

from __future__ import annotations

import pytest
from tests.support.chart import EVERYTHING, Helm, Object, only
from tests.support.kubernetes.api import Answer, Api, path_of

FOREIGN = {"ServiceMonitor"}
"""Its definition is the Prometheus operator's, which is not there."""


@pytest.fixture
def restricted(api: Api, namespace: str) -> str:
    """The test's namespace, which lets in what is restricted alone."""
    level = "pod-security.kubernetes.io/enforce"
    api.patch("v1", "Namespace", namespace, {"metadata": {"labels": {level: "restricted"}}})
    return namespace


def try_out(api: Api, item: Object) -> Answer:
    return api.ask(
        "PATCH",
        path_of(item),
        item,
        content_type="application/apply-patch+yaml",
        fieldManager="tests",
        force="true",
        dryRun="All",
        fieldValidation="Strict",
    )


@pytest.mark.parametrize("mode", ["default", "everything", "namespaced"])
def test_every_object_is_valid(api: Api, helm: Helm, restricted: str, mode: str) -> None:
    values = {"default": {}, "everything": EVERYTHING, "namespaced": {"namespaces": [restricted]}}
    objects = helm.template(values[mode], release="trial", namespace=restricted)

    for item in objects:
        if item["kind"] in FOREIGN:
            continue
        answer = try_out(api, item)
        assert (answer.code in (200, 201), answer.warnings) == (True, ()), answer.message


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["default", "everything"])
def test_the_operators_pod_is_let_into_a_restricted_namespace(
    api: Api, helm: Helm, restricted: str, values: Object
) -> None:
    template = only(
        helm.template({**values, "serviceAccount": {"create": False}}, namespace=restricted),
        "Deployment",
    )["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**pod["metadata"], "name": "operator", "namespace": restricted}

    answer = try_out(api, pod)

    assert (answer.code, answer.warnings) == (201, ()), answer.message


def test_a_pod_that_is_not_restricted_would_be_refused(
    api: Api, helm: Helm, restricted: str
) -> None:
    values = {"containerSecurityContext": {"allowPrivilegeEscalation": True}}
    pod = only(helm.template(values, namespace=restricted), "Pod")

    answer = try_out(api, pod)

    assert answer.code == 403
    assert "allowPrivilegeEscalation != false" in answer.message
