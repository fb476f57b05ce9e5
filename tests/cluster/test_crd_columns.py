"""What `kubectl get trun`, `-o wide` and `-w` show: the table that the server makes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.kubernetes.api import Api, Object, wait_for
from tests.support.kubernetes.control_plane import ControlPlane

from drivetrain_api.base import API_VERSION, KIND

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
"""What kubectl asks for."""
WIDTH = 110
"""Characters of a line that a terminal shows without folding."""
RUN: Object = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "metadata": {"name": "half-cheetah-sac"},
    "spec": {"algo": {"name": "sac"}, "task": {"name": "half_cheetah"}},
}
STATUS: Object = {
    "phase": "Running",
    "message": "2 of 2 pods are running",
    "done": "42%",
    "ranks": 2,
    "restarts": 1,
    "attempt": 3,
    "progress": {
        "envSteps": 420_000,
        "percent": 42,
        "stepsPerSecond": "15210.4",
        "meanReward": "4321.9",
        "evaluatedReturn": "4400.1",
        "etaSeconds": 38,
    },
}
SHOWN = {
    "Name": "half-cheetah-sac",
    "Phase": "Running",
    "Algo": "sac",
    "Task": "half_cheetah",
    "Ranks": 2,
    "Progress": "42%",
    "Steps/s": "15210.4",
    "Reward": "4321.9",
    "Restarts": 1,
}
WIDE = {
    "Attempt": 3,
    "EnvSteps": 420_000,
    "ETA(s)": 38,
    "Evaluated": "4400.1",
    "Message": "2 of 2 pods are running",
}


def path(namespace: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/trainingruns"


def rows(table: Object, *, wide: bool = False) -> list[dict[str, Any]]:
    """Cells by their column's name."""
    columns = table["columnDefinitions"]
    return [
        {
            column["name"]: cell
            for column, cell in zip(columns, row["cells"], strict=True)
            if wide or not column["priority"]
        }
        for row in table["rows"]
    ]


@pytest.fixture
def running(api: Api, namespace: str) -> Object:
    api.create(RUN, namespace=namespace)
    return api.patch(
        API_VERSION,
        KIND,
        RUN["metadata"]["name"],
        {"status": STATUS},
        namespace,
        subresource="status",
    )


@pytest.mark.usefixtures("running")
def test_a_running_run_reads_well(api: Api, namespace: str) -> None:
    table = api.ask("GET", path(namespace), accept=TABLE).body
    (row,) = rows(table)

    assert list(row) == [*SHOWN, "Age"]
    assert row["Age"].endswith("s")
    assert {name: row[name] for name in SHOWN} == SHOWN
    assert sum(max(len(name), len(str(cell))) + 3 for name, cell in row.items()) <= WIDTH


@pytest.mark.usefixtures("running")
def test_wide_adds_columns_after_the_age(api: Api, namespace: str) -> None:
    (row,) = rows(api.ask("GET", path(namespace), accept=TABLE).body, wide=True)

    assert list(row) == [*SHOWN, "Age", *WIDE]
    assert {name: row[name] for name in WIDE} == WIDE


def test_a_run_that_nobody_has_seen_yet_shows_what_is_known(api: Api, namespace: str) -> None:
    api.create(RUN, namespace=namespace)
    (row,) = rows(api.ask("GET", path(namespace), accept=TABLE).body, wide=True)

    known = {name: cell for name, cell in row.items() if cell is not None}
    assert set(known) == {"Name", "Algo", "Task", "Age"}


def test_zero_is_shown_as_zero(api: Api, namespace: str) -> None:
    api.create(RUN, namespace=namespace)
    api.patch(
        API_VERSION,
        KIND,
        RUN["metadata"]["name"],
        {"status": {"restarts": 0, "attempt": 0, "progress": {"envSteps": 0}}},
        namespace,
        subresource="status",
    )
    (row,) = rows(api.ask("GET", path(namespace), accept=TABLE).body, wide=True)

    assert (row["Restarts"], row["Attempt"], row["EnvSteps"]) == (0, 0, 0)


@pytest.mark.usefixtures("running")
def test_watching_shows_each_change_as_a_row(control_plane: ControlPlane, namespace: str) -> None:
    api = control_plane.api
    viewer = Api(control_plane.url, control_plane.token, control_plane.authority, accept=TABLE)
    lines = viewer.lines(f"{path(namespace)}?watch=1", timeout_s=10)
    first = json.loads(next(lines))
    api.patch(
        API_VERSION,
        KIND,
        RUN["metadata"]["name"],
        {"status": {"phase": "Complete", "done": "100%"}},
        namespace,
        subresource="status",
    )
    second = json.loads(next(lines))
    lines.close()

    (before,) = rows(first["object"])
    names = [column["name"] for column in first["object"]["columnDefinitions"]]
    after = dict(zip(names, second["object"]["rows"][0]["cells"], strict=True))
    assert (before["Phase"], before["Progress"]) == ("Running", "42%")
    assert (after["Phase"], after["Progress"]) == ("Complete", "100%")


def test_short_names_and_subresource_are_served(api: Api) -> None:
    def served() -> dict[str, Object]:
        found = api.request("GET", f"/apis/{API_VERSION}")["resources"]
        return {resource["name"]: resource for resource in found}

    resources = wait_for(served, "discovery")

    assert resources["trainingruns"]["shortNames"] == ["trun", "tr"]
    assert resources["trainingruns"]["singularName"] == "trainingrun"
    assert sorted(resources["trainingruns/status"]["verbs"]) == ["get", "patch", "update"]


def test_explain_has_words_for_every_field_of_the_spec(api: Api) -> None:
    """What `kubectl explain trainingrun.spec` reads."""
    published = api.request("GET", f"/openapi/v3/apis/{API_VERSION}", timeout_s=60)
    schema = published["components"]["schemas"]["dev.drivetrain.v1alpha1.TrainingRun"]
    fields = schema["properties"]["spec"]["properties"]

    assert {"algo", "task", "training", "storage"} <= set(fields)
    assert [name for name, field in fields.items() if not field.get("description")] == []
