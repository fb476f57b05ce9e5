"""The admission policy: a run reports its progress, and reaches nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.support.chart import Object
from tests.support.kubernetes.api import Answer, Api, wait_for

from drivetrain_api.digest import PROGRESS_LIMIT
from drivetrain_api.trainingrun import TrainingRun
from drivetrain_operator.manifests.config import progress_config_map
from drivetrain_operator.manifests.rbac import role, role_binding, service_account

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

MakeRun = Callable[..., TrainingRun]


@dataclass(frozen=True)
class Pod:
    """What a pod of a run can do with the token that it is given."""

    api: Api
    path: str

    def patch(self, change: object, content_type: str = MERGE, **params: str) -> Answer:
        return self.api.ask("PATCH", self.path, change, content_type=content_type, **params)

    def read(self) -> Object:
        found: Object = self.api.request("GET", self.path)
        return found


@pytest.fixture
def pod(api: Api, account: Callable[[str, str], Api], namespace: str, make_run: MakeRun) -> Pod:
    """A pod of a run whose children are there as the operator makes them."""
    run = make_run("walk")
    for build in (service_account, role, role_binding, progress_config_map):
        api.create(build(run), fieldManager="drivetrain-operator")
    path = f"/api/v1/namespaces/{namespace}/configmaps/walk-progress"
    pod = Pod(account(namespace, "walk-trainer"), path)
    hostile = {"metadata": {"finalizers": ["example.com/held"]}}

    def held() -> bool:
        return "change the finalizers" in pod.patch(hostile, dryRun="All").message

    wait_for(held, "admission policy in force")
    return pod


CLAIM = {
    "manager": "tests",
    "operation": "Update",
    "apiVersion": "v1",
    "fieldsType": "FieldsV1",
}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}
HOSTILE = {
    "a finalizer": ({"metadata": {"finalizers": ["example.com/held"]}}, "finalizers"),
    "a label": ({"metadata": {"labels": {"a": "b"}}}, "labels"),
    "no labels": ({"metadata": {"labels": None}}, "labels"),
    "another account's label": (
        {"metadata": {"labels": {"drivetrain.dev/progress": "default"}}},
        "labels",
    ),
    "another run's label": ({"metadata": {"labels": {"drivetrain.dev/run": "b"}}}, "labels"),
    "an annotation": ({"metadata": {"annotations": {"a": "b" * 200_000}}}, "annotations"),
    "no owners": ({"metadata": {"ownerReferences": None}}, "owners"),
    "another owner": ({"metadata": {"ownerReferences": [OWNER]}}, "owners"),
    "immutable": ({"immutable": True}, "immutable"),
    "another key": ({"data": {"other": "a"}}, 'no key but "progress"'),
    "another key instead": ({"data": {"other": "a", "progress": None}}, 'no key but "progress"'),
    "binary data": ({"binaryData": {"progress2": "YQ=="}}, "binaryData"),
    "a byte too much": ({"data": {"progress": "a" * 4097}}, "at most 4096 bytes"),
    "letters of two bytes": ({"data": {"progress": "é" * 2049}}, "at most 4096 bytes"),
    "nearly a mebibyte": ({"data": {"progress": "a" * 1_000_000}}, "at most 4096 bytes"),
    "claims of fields": (
        {
            "metadata": {
                "managedFields": [
                    {**CLAIM, "fieldsV1": {"f:data": {f"f:{n:064}": {} for n in range(5_000)}}}
                ]
            }
        },
        "managed fields",
    ),
    "claims below a field": (
        {
            "metadata": {
                "managedFields": [
                    {**CLAIM, "fieldsV1": {"f:data": {"f:progress": {"f:a": {"f:b": {}}}}}}
                ]
            }
        },
        "managed fields",
    ),
    "claims of labels": (
        {
            "metadata": {
                "managedFields": [{**CLAIM, "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}]
            }
        },
        "managed fields",
    ),
}


@pytest.mark.parametrize(("change", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_change_is_refused_by_name(pod: Pod, change: Object, words: str) -> None:
    before = pod.read()

    answer = pod.patch(change)

    assert answer.code == 403
    assert "denied request: a run may" in answer.message
    assert words in answer.message
    assert pod.read() == before


@pytest.mark.parametrize(
    ("content_type", "change"),
    [
        (STRATEGIC, {"metadata": {"finalizers": ["example.com/held"]}}),
        (JSON, [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/held"]}]),
        (
            APPLY,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "walk-progress", "finalizers": ["example.com/held"]},
            },
        ),
    ],
)
def test_whatever_the_kind_of_patch(pod: Pod, content_type: str, change: object) -> None:
    apply = {"fieldManager": "a"} if content_type == APPLY else {}

    answer = pod.patch(change, content_type, **apply)

    assert answer.code == 403
    assert "may not change the finalizers" in answer.message


@pytest.mark.parametrize("text", ["", '{"phase": "x"}', "a" * 4096, "é" * 2048, "\x00\ud7ff"])
def test_a_report_is_taken(pod: Pod, text: str) -> None:
    answer = pod.patch({"data": {"progress": text}})

    assert answer.code == 200, answer.message
    assert pod.read()["data"] == {"progress": text}


def test_the_server_finds_nothing_wrong_with_the_policy(api: Api, installed: str) -> None:
    name = f"{installed}-drivetrain-progress"
    kind = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
    status = wait_for(lambda: api.get(*kind, name).get("status"), "type check of the policy")

    assert status["typeChecking"] == {}


def test_the_limit_is_the_contracts() -> None:
    assert PROGRESS_LIMIT == 4096


def test_reports_of_a_long_run_are_taken(pod: Pod) -> None:
    """From more clients than the server remembers by name."""
    for number in range(30):
        answer = pod.patch({"data": {"progress": f"{number}"}}, fieldManager=f"m{number % 15}")
        assert answer.code == 200, answer.message


def test_what_a_run_can_store_is_bounded(pod: Pod) -> None:
    """By applying under one name after another, each of which the server remembers."""
    report = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "walk-progress"},
        "data": {"progress": "a"},
    }
    codes = [
        pod.patch(report, APPLY, fieldManager=f"{number:0128}", force="true").code
        for number in range(25)
    ]

    assert codes[0] == 200
    assert codes[-1] == 403
    assert len(str(pod.read())) < 20_000


def test_nothing_but_its_own_config_map(pod: Pod, namespace: str, api: Api) -> None:
    api.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}},
        namespace=namespace,
    )
    folder = f"/api/v1/namespaces/{namespace}/configmaps"

    for method, path in [
        ("GET", folder),
        ("GET", f"{folder}/other"),
        ("DELETE", pod.path),
        ("POST", folder),
        ("GET", f"/api/v1/namespaces/{namespace}/secrets"),
        ("GET", f"/api/v1/namespaces/{namespace}/pods"),
    ]:
        assert pod.api.ask(method, path, {} if method == "POST" else None).code == 403, path
    put = pod.api.ask("PUT", pod.path, pod.read())
    assert put.code == 403


def test_the_policy_holds_nobody_else(pod: Pod, api: Api, namespace: str) -> None:
    """An administrator, and the operator that strips what is foreign."""
    change = {
        "metadata": {"finalizers": ["example.com/held"], "annotations": {"a": "b"}},
        "data": {"other": "a" * 5000},
    }
    api.patch("v1", "ConfigMap", "walk-progress", change, namespace)
    api.patch("v1", "ConfigMap", "walk-progress", {"data": {"other": None}}, namespace)

    answer = pod.patch({"data": {"progress": "still reported"}})

    assert answer.code == 200, answer.message
    api.patch("v1", "ConfigMap", "walk-progress", {"metadata": {"finalizers": None}}, namespace)
