from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from drivetrain_api import labels
from drivetrain_api.trainingrun import TrainingRun
from drivetrain_operator.manifests.children import children
from drivetrain_operator.manifests.kinds import Child, ChildKind

MakeRun = Callable[..., TrainingRun]
EVERYTHING: dict[str, Any] = {
    "storage": {"size": "10Gi", "storageClassName": "fast"},
    "topology": {"nodes": 64, "ranksPerNode": 16},
    "accelerator": {"gpusPerNode": 8},
    "queueName": "lab-queue",
    "schedulerName": "gang",
    "podTemplate": {
        "metadata": {"annotations": {"team": "legs"}},
        "spec": {
            "nodeSelector": {"gpu": "h200"},
            "containers": [{"name": "trainer", "env": [{"name": "A", "value": "b"}]}],
        },
    },
}


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [s for item in value.items() for part in item for s in strings(part)]
    if isinstance(value, list):
        return [s for item in value for s in strings(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("spec", [{}, EVERYTHING])
def test_building_twice_gives_equal_objects_that_share_nothing(
    make_run: MakeRun, spec: dict[str, Any]
) -> None:
    given = copy.deepcopy(spec)
    run = make_run(**spec)
    before = run.model_dump()
    first, second = children(run, 3), children(run, 3)
    assert first == second
    for child in first:
        child.manifest["metadata"]["labels"].clear()
        child.manifest.get("spec", {}).clear()
    assert children(run, 3) == second
    assert run.model_dump() == before
    assert spec == given


@pytest.mark.parametrize("spec", [{}, EVERYTHING])
def test_manifests_are_plain_json(make_run: MakeRun, spec: dict[str, Any]) -> None:
    for child in children(make_run(**spec), 1):
        assert json.loads(json.dumps(child.manifest)) == child.manifest


def test_each_child_is_labelled_and_owned(make_run: MakeRun) -> None:
    for child in children(make_run(**EVERYTHING), 7):
        meta = child.manifest["metadata"]
        assert (meta["name"], meta["namespace"]) == (child.name, "lab")
        assert child.manifest["kind"] == child.kind
        assert meta["labels"][labels.RUN] == "walk"
        assert meta["labels"][labels.RUN_UID] == "run-uid-1"
        assert meta["labels"][labels.MANAGED_BY] == "drivetrain"
        assert meta["ownerReferences"] == [
            {
                "apiVersion": "drivetrain.dev/v1alpha1",
                "kind": "TrainingRun",
                "name": "walk",
                "uid": "run-uid-1",
                "controller": True,
            }
        ]


def test_what_belongs_to_an_attempt_carries_its_number_and_the_rest_does_not(
    make_run: MakeRun,
) -> None:
    numbered = {
        (child.kind, child.name): child.manifest["metadata"]["labels"].get(labels.ATTEMPT)
        for child in children(make_run(), 7)
    }
    assert numbered == {
        (ChildKind.CONFIG_MAP, "walk-progress"): None,
        (ChildKind.SERVICE_ACCOUNT, "walk-trainer"): None,
        (ChildKind.ROLE, "walk-trainer"): None,
        (ChildKind.ROLE_BINDING, "walk-trainer"): None,
        (ChildKind.CONFIG_MAP, "walk-a7"): "7",
        (ChildKind.SERVICE, "walk-a7"): "7",
        (ChildKind.JOB, "walk-a7"): "7",
    }


@pytest.mark.parametrize("attempt", [1, 999_999])
def test_names_fit_a_dns_label_for_the_longest_run(make_run: MakeRun, attempt: int) -> None:
    run = make_run("n" * 50, **EVERYTHING)
    made = children(run, attempt)
    for child in made:
        assert len(child.name) <= 63
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", child.name)
        for value in child.manifest["metadata"]["labels"].values():
            assert len(value) <= 63
    host = f"{made[-1].name}-{run.spec.topology.nodes - 1}"
    assert len(host) <= 63


def test_two_runs_never_meet_in_a_name(make_run: MakeRun) -> None:
    """Not even where one is called like another's attempt."""

    def names(run: TrainingRun) -> set[tuple[ChildKind, str]]:
        made: list[Child] = [c for attempt in (1, 2, 11) for c in children(run, attempt)]
        return {(child.kind, child.name) for child in made}

    runs = [make_run(name, **EVERYTHING) for name in ("x", "x-a1", "x-a1-a1", "x-progress")]
    for index, run in enumerate(runs):
        for other in runs[index + 1 :]:
            assert not names(run) & names(other)
