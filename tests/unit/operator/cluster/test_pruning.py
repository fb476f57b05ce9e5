from __future__ import annotations

import copy
from typing import Any

import pytest

from drivetrain_api import labels
from drivetrain_operator.cluster.keys import RunKey
from drivetrain_operator.cluster.pruning import KeptRun, run_of, view_of
from drivetrain_operator.cluster.resources import CONFIG_MAPS, EVENTS, JOBS, PODS, SERVICES
from drivetrain_operator.reconcile.snapshot import RunView
from drivetrain_operator.reconcile.views import ConfigMapView, JobEvent, JobView, PodView

RUN: dict[str, Any] = {
    "apiVersion": "drivetrain.dev/v1alpha1",
    "kind": "TrainingRun",
    "metadata": {
        "name": "walk",
        "namespace": "team",
        "uid": "u-1",
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": "2026-03-01T12:00:00Z",
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            labels.SUSPENDED_BY: "me",
        },
    },
    "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}},
    "status": {"phase": "Running", "attempt": 1},
}


def event(kind: str = "Job", name: str = "walk-a1", severity: str = "Warning") -> dict[str, Any]:
    return {
        "metadata": {"name": "e", "namespace": "team"},
        "involvedObject": {"kind": kind, "name": name, "uid": "j"},
        "type": severity,
    }


RUN_OF = [
    (event(), RunKey("team", "walk")),
    (event(name="walk-a2-a10"), RunKey("team", "walk-a2")),
    (event(kind="Pod"), None),
    (event(severity="Normal"), None),
    (event(name="backup-28"), None),
    (event(name="walk-a0"), None),
    (event(name="-a1"), None),
    ({}, None),
]


@pytest.mark.parametrize(("obj", "key"), RUN_OF)
def test_the_run_of_an_event_is_told_by_the_name_of_the_job(
    obj: dict[str, Any], key: RunKey | None
) -> None:
    assert run_of(EVENTS, obj) == key


@pytest.mark.parametrize("resource", [JOBS, PODS, CONFIG_MAPS])
def test_the_run_of_a_child_is_told_by_its_label(resource: Any) -> None:
    obj = {"metadata": {"namespace": "team", "labels": {labels.RUN: "walk"}}}
    assert run_of(resource, obj) == RunKey("team", "walk")
    assert run_of(resource, {"metadata": {"namespace": "team", "labels": None}}) is None
    assert run_of(resource, {"metadata": {"namespace": "team"}}) is None
    assert str(RunKey("team", "walk")) == "team/walk"


def test_views_by_resource() -> None:
    found = [type(view_of(r, {})) for r in (JOBS, PODS, CONFIG_MAPS, EVENTS)]
    assert found == [JobView, PodView, ConfigMapView, JobEvent]
    with pytest.raises(KeyError):
        view_of(SERVICES, {})


def test_a_kept_run_loses_nothing_that_is_read() -> None:
    before = copy.deepcopy(RUN)
    kept = KeptRun.from_object(RUN)
    assert before == RUN, "what is handed in stays as it is"
    assert (kept.uid, kept.generation, kept.version, kept.phase) == ("u-1", 2, "7", "Running")
    assert b"managedFields" not in kept.content
    assert b"last-applied" not in kept.content
    assert kept.as_object()["metadata"]["annotations"] == {labels.SUSPENDED_BY: "me"}
    read = RunView.from_object(kept.as_object())
    whole = RunView.from_object(RUN)
    assert (read.spec, read.status) == (whole.spec, whole.status)
    assert read.metadata.resource_version == "7"


def test_kept_runs_differ_in_what_is_read_alone() -> None:
    kept = KeptRun.from_object(RUN)
    newer = copy.deepcopy(RUN)
    newer["metadata"] |= {"resourceVersion": "8", "managedFields": []}
    assert kept.same_as(KeptRun.from_object(newer))
    newer["status"]["attempt"] = 2
    assert not kept.same_as(KeptRun.from_object(newer))


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"metadata": {"annotations": 3}}])
def test_a_run_of_any_shape_is_kept(obj: dict[str, Any]) -> None:
    kept = KeptRun.from_object(obj)
    assert (kept.uid, kept.version, kept.phase) == ("", "", "")
