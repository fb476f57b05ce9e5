"""A newer definition over an older one: runs that exist stay, and may still be changed.

The older one is made of today's, less what a later version would have added.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.kubernetes.api import Api, Object, RefusedError, wait_for
from tests.support.kubernetes.control_plane import ControlPlane

from drivetrain_api import crd
from drivetrain_api.base import API_VERSION, KIND

SPEC: Object = {"algo": {"name": "sac"}, "task": {"name": "half_cheetah"}}
BOTH_LENGTHS: Object = {"totalEnvSteps": 5, "iterations": 5}


def older() -> Object:
    """Without deadlines, disruptions, MPS and all rules; seeds had no upper bound."""
    definition = copy.deepcopy(crd.custom_resource_definition())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec, status = (schema["properties"][name]["properties"] for name in ("spec", "status"))
    del spec["deadlines"], spec["accelerator"]["properties"]["mps"], status["disruptions"]
    spec["seed"].pop("maximum")
    _drop_rules(schema)
    return definition


def _drop_rules(node: Any) -> None:
    if isinstance(node, dict):
        node.pop("x-kubernetes-validations", None)
        for child in node.values():
            _drop_rules(child)


def run(name: str, **spec: object) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": SPEC | spec,
    }


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server with runs made under the older definition, and then the newer one."""
    folder: Path = tmp_path_factory.mktemp("upgraded")
    with ControlPlane(folder, definitions=[older()], controllers=False) as plane:
        api = plane.api
        for name in ("kept", "changed"):
            api.create(run(name), namespace="default")
        api.create(run("lawless", training=BOTH_LENGTHS, seed=2**40), namespace="default")
        api.patch(
            API_VERSION,
            KIND,
            "kept",
            {"status": {"attempt": 3, "phase": "Running"}},
            "default",
            subresource="status",
        )
        plane.install(crd.custom_resource_definition())
        wait_for(lambda: _refuses_both_lengths(api), "newer rules in force")
        yield api


def _refuses_both_lengths(api: Api) -> bool:
    path = f"/apis/{API_VERSION}/namespaces/default/trainingruns"
    answer = api.ask("POST", path, run("probe", training=BOTH_LENGTHS), dryRun="All")
    return answer.code == 422


def test_runs_and_their_status_stay_as_they_were(upgraded: Api) -> None:
    found = upgraded.get(API_VERSION, KIND, "kept", "default")

    assert found["spec"] == SPEC
    assert found["status"] == {"attempt": 3, "phase": "Running"}
    assert found["metadata"]["generation"] == 1


def test_new_fields_can_be_set_on_an_old_run(upgraded: Api) -> None:
    change = {"spec": {"deadlines": {"activeSeconds": 60}}}
    upgraded.patch(API_VERSION, KIND, "changed", change, "default", fieldValidation="Strict")
    upgraded.patch(
        API_VERSION,
        KIND,
        "changed",
        {"status": {"disruptions": 1}},
        "default",
        subresource="status",
        fieldValidation="Strict",
    )
    found = upgraded.get(API_VERSION, KIND, "changed", "default")

    assert found["spec"]["deadlines"] == {"activeSeconds": 60}
    assert found["status"]["disruptions"] == 1


def test_new_rules_hold_for_an_old_run(upgraded: Api) -> None:
    with pytest.raises(RefusedError, match="seed is immutable"):
        upgraded.patch(API_VERSION, KIND, "changed", {"spec": {"seed": 1}}, "default")


def test_a_run_that_new_rules_would_refuse_may_still_be_suspended_and_deleted(
    upgraded: Api,
) -> None:
    """What was not changed is not judged anew, or nobody could stop an old run."""
    upgraded.patch(API_VERSION, KIND, "lawless", {"spec": {"suspend": True}}, "default")
    upgraded.patch(
        API_VERSION,
        KIND,
        "lawless",
        {"status": {"attempt": 1}},
        "default",
        subresource="status",
    )
    stored = upgraded.get(API_VERSION, KIND, "lawless", "default")
    upgraded.delete(API_VERSION, KIND, "lawless", "default")

    assert stored["spec"]["suspend"] is True
    assert stored["spec"]["seed"] == 2**40
    assert stored["status"] == {"attempt": 1}
    assert upgraded.find(API_VERSION, KIND, "lawless", "default") is None
