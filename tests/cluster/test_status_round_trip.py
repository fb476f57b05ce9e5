"""A status comes back as it was written: nothing pruned, nothing rounded, nothing defaulted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.kubernetes.api import Api, Object
from tests.support.schema_cases import Schema, minimal

from drivetrain_api import crd
from drivetrain_api.base import API_VERSION, KIND
from drivetrain_api.status import Condition, ConditionStatus, ConditionType, TrainingRunStatus

SCHEMA = crd.resource_schema()["properties"]["status"]
RUN: Object = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "metadata": {"name": "run"},
    "spec": {"algo": {"name": "sac"}, "task": {"name": "half_cheetah"}},
}


def fullest(node: Schema) -> Any:
    """Every field set, each to the most that it may hold."""
    match node["type"]:
        case "object":
            return {name: fullest(child) for name, child in node["properties"].items()}
        case "array":
            return fullest_list(node)
        case "integer":
            return node.get("maximum", 2**63 - 1)
        case "boolean":
            return True
        case _:
            free = "maxLength" in node and "pattern" not in node
            return "é" * node["maxLength"] if free else minimal(node)


def fullest_list(node: Schema) -> list[Any]:
    item = fullest(node["items"])
    if node.get("x-kubernetes-list-type") != "map":
        return [item] * node["maxItems"]
    (key,) = node["x-kubernetes-list-map-keys"]
    kinds = node["items"]["properties"][key]["enum"]
    return [item | {key: kind} for kind in kinds]


def write(api: Api, namespace: str, status: Object) -> None:
    """As the operator does it: server-side apply of the whole status."""
    api.request(
        "PATCH",
        f"/apis/{API_VERSION}/namespaces/{namespace}/trainingruns/run/status",
        {"apiVersion": API_VERSION, "kind": KIND, "status": status},
        content_type="application/apply-patch+yaml",
        fieldManager="drivetrain-operator",
        force="true",
        fieldValidation="Strict",
    )


def read(api: Api, namespace: str) -> Object:
    stored: Object = api.get(API_VERSION, KIND, "run", namespace)
    return stored


def wire(status: TrainingRunStatus) -> Object:
    return status.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


def test_the_fullest_status_comes_back(api: Api, namespace: str) -> None:
    api.create(RUN, namespace=namespace)
    given = fullest(SCHEMA)
    write(api, namespace, given)
    stored = read(api, namespace)

    assert stored["status"] == given
    assert wire(TrainingRunStatus.model_validate(stored["status"])) == given
    assert stored["metadata"]["generation"] == 1  # a status is no change of what is wanted


@pytest.mark.parametrize("name", sorted(SCHEMA["properties"]))
def test_a_field_comes_back_alone(api: Api, namespace: str, name: str) -> None:
    """Nothing else appears beside it: the server defaults nothing."""
    api.create(RUN, namespace=namespace)
    given = {name: minimal(SCHEMA["properties"][name])}
    write(api, namespace, given)

    assert read(api, namespace).get("status", {}) == given


def test_what_the_next_status_leaves_out_is_gone(api: Api, namespace: str) -> None:
    api.create(RUN, namespace=namespace)
    write(api, namespace, fullest(SCHEMA))
    write(api, namespace, {"attempt": 2, "conditions": []})

    # a list by keys that loses its last item goes altogether: the model reads that as empty
    assert read(api, namespace)["status"] == {"attempt": 2}


def test_writing_it_again_changes_nothing(api: Api, namespace: str) -> None:
    api.create(RUN, namespace=namespace)
    given = fullest(SCHEMA)
    write(api, namespace, given)
    before = read(api, namespace)["metadata"]["resourceVersion"]
    write(api, namespace, given)

    assert read(api, namespace)["metadata"]["resourceVersion"] == before


def test_a_status_in_a_manifest_is_ignored(api: Api, namespace: str) -> None:
    api.create(RUN | {"status": {"attempt": 7}}, namespace=namespace)
    assert "status" not in read(api, namespace)
    write(api, namespace, {"attempt": 1})
    api.patch(API_VERSION, KIND, "run", {"status": {"attempt": 7}}, namespace)

    assert read(api, namespace)["status"] == {"attempt": 1}


def test_a_spec_written_through_the_status_is_ignored(api: Api, namespace: str) -> None:
    api.create(RUN, namespace=namespace)
    api.patch(
        API_VERSION,
        KIND,
        "run",
        {"spec": {"suspend": True}, "status": {"attempt": 1}},
        namespace,
        subresource="status",
    )

    stored = read(api, namespace)
    assert stored["spec"] == RUN["spec"]
    assert stored["status"] == {"attempt": 1}


def test_times_keep_their_zone_and_second(api: Api, namespace: str) -> None:
    api.create(RUN, namespace=namespace)
    condition = Condition.model_validate(
        {
            "type": ConditionType.ACCEPTED,
            "status": ConditionStatus.TRUE,
            "reason": "Valid",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
    )
    status = TrainingRunStatus(conditions=(condition,), started_at=condition.last_transition_time)
    write(api, namespace, wire(status))

    stored = read(api, namespace)["status"]
    assert stored["startedAt"] == "2026-01-02T03:04:05Z"
    assert TrainingRunStatus.model_validate(stored) == status
