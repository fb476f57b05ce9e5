"""What the API server itself accepts and refuses: every bound and every rule, with its words.

Bounds are read from the schema, with values at and beyond each; rules have a table of their own.
The models must come to the server's verdict, so that `drivetrain validate` is to be trusted.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from tests.support.kubernetes.api import Answer, Api, Object
from tests.support.schema_cases import Case, cases, placed

from drivetrain_api import crd
from drivetrain_api.base import API_VERSION, KIND
from drivetrain_api.compose import parse_run
from drivetrain_api.crd_rules import MAX_NAME, RULES
from drivetrain_api.errors import SpecError
from drivetrain_api.status import TrainingRunStatus

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = crd.resource_schema()["properties"]
MINIMAL: Object = {"algo": {"name": "sac"}, "task": {"name": "half_cheetah"}}
WITH_MPS: Object = {"accelerator": {"gpusPerNode": 1, "mps": {"mode": "InContainer"}}}
NEEDED_BESIDE: dict[str, Object] = {
    "spec.accelerator.mps.activeThreadPercentage": WITH_MPS,
    "spec.accelerator.mps.mode": {"accelerator": {"gpusPerNode": 1}},
    "spec.accelerator.mps.pinnedMemoryLimit": WITH_MPS,
    "spec.storage.storageClassName": {"storage": {"size": "1Gi"}},
    "spec.training.cudaProcessSharing": {"sim": "mjwarp"},
}
"""What a rule, or the operator, wants to be there too."""
OPERATOR_REFUSES_MORE = {
    "spec.accelerator.mps.pinnedMemoryLimit": "a list of limits has a grammar of its own",
}
"""Where the server's word is not the last one, each with its reason."""
SERVER_ALONE = frozenset({"null", "list-map-keys"})
"""What the models see otherwise: the server drops a null, they want the field left out; and
conditions are made by our own code alone."""


def run(spec: Object, name: str = "run") -> Object:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def merged(base: Object, change: Object) -> Object:
    result = copy.deepcopy(base)
    for key, value in change.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if nested else value
    return result


def create(
    api: Api, namespace: str, item: Object, *, fields: str = "Strict", dry_run: bool = False
) -> Answer:
    """As a user's client does it: unknown fields are refused."""
    path = f"/apis/{API_VERSION}/namespaces/{namespace}/trainingruns"
    if dry_run:
        return api.ask("POST", path, item, fieldValidation=fields, dryRun="All")
    return api.ask("POST", path, item, fieldValidation=fields)


# -- bounds ------------------------------------------------------------------------------------


def by_path(root: str) -> list[Any]:
    """One parameter a place, so that a run of the suite reads like the schema."""
    every = sorted(cases(SCHEMA[root], root), key=lambda case: case.path)
    return [
        pytest.param(list(group), id=path)
        for path, group in itertools.groupby(every, key=lambda case: case.path)
    ]


def findings(
    given: list[Case], ask: Callable[[Case], Answer], model: Callable[[Case], object]
) -> Iterator[str]:
    """Where the server, or the model, says something else than the schema promises."""
    for case in given:
        answer = ask(case)
        refused = answer.code >= 400
        if refused != (case.says is not None):
            yield f"{case.id} {case.value!r}: {answer.code} {answer.message}"
        elif case.says is not None and not any(
            case.says in message and _names(case, field) for field, message in answer.causes
        ):
            yield f"{case.id} {case.value!r}: wrong words: {answer.causes}"
        if case.rule in SERVER_ALONE:
            continue
        try:
            model(case)
        except (SpecError, ValidationError) as error:
            if not refused and case.path not in OPERATOR_REFUSES_MORE:
                yield f"{case.id} {case.value!r}: the model refuses: {error}"
        else:
            if refused:
                yield f"{case.id} {case.value!r}: the model accepts"


def _names(case: Case, field: str) -> bool:
    """Whether the refusal names the place; an item's number is 0."""
    expected = case.path.replace("[]", "[0]")
    return field.startswith(expected) if case.within else field == expected


def spec_of(case: Case) -> Object:
    spec: Object = placed(SCHEMA["spec"], case.path.removeprefix("spec."), case.value)
    return merged(NEEDED_BESIDE.get(case.path, {}), spec)


@pytest.mark.parametrize("given", by_path("spec"))
def test_bounds_of_the_spec(api: Api, namespace_kept: str, given: list[Case]) -> None:
    def ask(case: Case) -> Answer:
        return create(api, namespace_kept, run(spec_of(case)), dry_run=True)

    found = findings(given, ask, lambda case: parse_run(run(spec_of(case))))

    assert list(found) == []


@pytest.fixture(scope="module")
def namespace_kept(api: Api) -> Iterator[str]:
    """One namespace for all dry runs."""
    name = "crd-rules"
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    api.delete("v1", "Namespace", name)


@pytest.fixture(scope="module")
def stored_run(api: Api, namespace_kept: str) -> Object:
    """A run whose status dry runs replace."""
    return api.create(run(MINIMAL, "bounds"), namespace=namespace_kept)


@pytest.mark.parametrize("given", by_path("status"))
def test_bounds_of_the_status(
    api: Api, namespace_kept: str, stored_run: Object, given: list[Case]
) -> None:
    path = f"/apis/{API_VERSION}/namespaces/{namespace_kept}/trainingruns/bounds/status"

    def status_of(case: Case) -> Object:
        status: Object = placed(SCHEMA["status"], case.path.removeprefix("status."), case.value)
        return status

    def ask(case: Case) -> Answer:
        item = stored_run | {"status": status_of(case)}
        return api.ask("PUT", path, item, dryRun="All", fieldValidation="Strict")

    found = findings(given, ask, lambda case: TrainingRunStatus.model_validate(status_of(case)))

    assert list(found) == []


# -- rules -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A manifest as it is created, or how it is changed after, and the verdict."""

    name: str
    spec: Object
    change: Object | None = None
    """Of the spec of the run that was created."""
    field: str = ""
    message: str = ""
    """Of the refusal; accepted where empty."""

    @property
    def refused(self) -> bool:
        return bool(self.message)


TWO_LENGTHS = "totalEnvSteps and iterations contradict each other: set one of the two"
TWO_PLACES = "claimName, size and emptyDir contradict each other: set one of them"
NO_SIZE = "storageClassName needs size: it is the class of a claim made for this run"
OVERRIDES = {"overrides": {"count": 1, "speed": 0.5, "name": "a", "on": True}}

CREATED = (
    Row("length by steps", {"training": {"totalEnvSteps": 5}}),
    Row("length by iterations", {"training": {"iterations": 5}}),
    Row("length by one, the other null", {"training": {"totalEnvSteps": None, "iterations": 5}}),
    Row(
        "both lengths",
        {"training": {"totalEnvSteps": 5, "iterations": 5}},
        field="spec.training.iterations",
        message=TWO_LENGTHS,
    ),
    Row("a claim", {"storage": {"claimName": "a"}}),
    Row("a size", {"storage": {"size": "1Gi"}}),
    Row("no storage", {"storage": {"emptyDir": True}}),
    Row("a claim, and not an emptyDir", {"storage": {"claimName": "a", "emptyDir": False}}),
    Row(
        "a claim, the others null", {"storage": {"claimName": "a", "size": None, "emptyDir": None}}
    ),
    Row("nothing chosen", {"storage": {}}),
    Row(
        "claim and size",
        {"storage": {"claimName": "a", "size": "1Gi"}},
        field="spec.storage",
        message=TWO_PLACES,
    ),
    Row(
        "claim and emptyDir",
        {"storage": {"claimName": "a", "emptyDir": True}},
        field="spec.storage",
        message=TWO_PLACES,
    ),
    Row(
        "size and emptyDir",
        {"storage": {"size": "1Gi", "emptyDir": True}},
        field="spec.storage",
        message=TWO_PLACES,
    ),
    Row("a class and a size", {"storage": {"size": "1Gi", "storageClassName": "fast"}}),
    Row("no class", {"storage": {"storageClassName": None}}),
    Row(
        "a class of no claim",
        {"storage": {"storageClassName": "fast"}},
        field="spec.storage.storageClassName",
        message=NO_SIZE,
    ),
    Row(
        "a class beside an existing claim",
        {"storage": {"claimName": "a", "storageClassName": "fast"}},
        field="spec.storage.storageClassName",
        message=NO_SIZE,
    ),
    Row("overrides of any type", {"task": {"name": "half_cheetah"} | OVERRIDES}),
)


def _immutable(name: str, first: Any, second: Any, *, required: bool = False) -> Iterator[Row]:
    field, message = f"spec.{name}", f"{name} is immutable: create another TrainingRun"
    yield Row(f"{name} as it was", {name: first}, {name: first, "suspend": True})
    yield Row(f"{name} changed", {name: first}, {name: second}, field, message)
    if not required:
        yield Row(f"{name} added", {}, {name: second}, field, message)
        yield Row(f"{name} removed", {name: first}, {name: None}, field, message)


MEMBER: Object = {"suite": "seeds", "runIdx": 0, "invocation": "first"}
FROM = "checkpoint.resumeFrom"
FROM_MESSAGE = f"{FROM} is immutable: create another TrainingRun"
CHANGED = (
    *_immutable("algo", {"name": "sac"}, {"name": "sac", "numEnvs": 2}, required=True),
    *_immutable("task", {"name": "hopper"}, {"name": "ant"}, required=True),
    *_immutable("sim", "mujoco", "mjwarp"),
    *_immutable("seed", 1, 2),
    *_immutable("topology", {"nodes": 1}, {"nodes": 2}),
    *_immutable("accelerator", {"gpusPerNode": 0}, {"gpusPerNode": 1}),
    *_immutable("storage", {"claimName": "a"}, {"claimName": "b"}),
    *_immutable("experiment", MEMBER, MEMBER | {"runIdx": 1}),
    Row(f"{FROM} as it was", {"checkpoint": {"resumeFrom": "a"}}, {"checkpoint": {"keep": 5}}),
    Row("checkpoint added", {}, {"checkpoint": {"keep": 5}}),
    Row("checkpoint removed", {"checkpoint": {"keep": 5}}, {"checkpoint": None}),
    Row(
        f"{FROM} changed",
        {"checkpoint": {"resumeFrom": "a"}},
        {"checkpoint": {"resumeFrom": "b"}},
        f"spec.{FROM}",
        FROM_MESSAGE,
    ),
    Row(f"{FROM} added", {}, {"checkpoint": {"resumeFrom": "b"}}, f"spec.{FROM}", FROM_MESSAGE),
    Row(
        f"{FROM} removed",
        {"checkpoint": {"resumeFrom": "a"}},
        {"checkpoint": None},
        f"spec.{FROM}",
        FROM_MESSAGE,
    ),
    Row("suspended", {}, {"suspend": True}),
    Row("deadlines", {"deadlines": {"activeSeconds": 60}}, {"deadlines": {"activeSeconds": 90}}),
    Row("time to live", {}, {"ttlSecondsAfterFinished": 60}),
    Row("a soak", {}, {"soak": {"durationSeconds": 1800, "growth": {"fds": 64}}}),
    Row("restarts", {"restart": {"maxRestarts": 1}}, {"restart": {"maxRestarts": 2}}),
    Row("image", {"image": "a"}, {"image": "b"}),
    Row("pods", {}, {"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}),
    Row("a run made longer", {"training": {"iterations": 5}}, {"training": {"iterations": 9}}),
    Row(
        "made longer by the other length",
        {"training": {"iterations": 5}},
        {"training": {"totalEnvSteps": 9}},
        "spec.training.iterations",
        TWO_LENGTHS,
    ),
)


def named(rows: tuple[Row, ...]) -> list[Any]:
    return [pytest.param(row, id=row.name) for row in rows]


@pytest.mark.parametrize("row", named(CREATED))
def test_rules_on_what_is_created(api: Api, namespace_kept: str, row: Row) -> None:
    spec = merged(MINIMAL, row.spec)

    answer = create(api, namespace_kept, run(spec), dry_run=True)

    check(row, answer)
    with pytest.raises(SpecError) if row.refused else nullcontext():
        parse_run(run(spec))


@pytest.mark.parametrize("row", named(CHANGED))
def test_rules_on_what_is_changed(api: Api, namespace_kept: str, row: Row) -> None:
    made = api.create(
        run(merged(MINIMAL, row.spec)) | {"metadata": {"generateName": "run-"}},
        namespace=namespace_kept,
    )
    path = f"/apis/{API_VERSION}/namespaces/{namespace_kept}/trainingruns"

    answer = api.ask(
        "PATCH",
        f"{path}/{made['metadata']['name']}",
        {"spec": row.change},
        content_type="application/merge-patch+json",
        dryRun="All",
        fieldValidation="Strict",
    )

    check(row, answer)


def check(row: Row, answer: Answer) -> None:
    if row.refused:
        assert answer.code == 422, answer.message
        assert answer.causes == [(row.field, f'Invalid value: "object": {row.message}')]
    else:
        assert answer.code < 300, answer.message


def test_every_rule_has_rows_of_both_verdicts() -> None:
    places = {
        (f"{place}{rule.field_path or ''}", rule.message)
        for place, rules in RULES.items()
        for rule in rules
        if place
    }
    refused = {(row.field, row.message) for row in (*CREATED, *CHANGED) if row.refused}

    assert refused == places


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("a" * MAX_NAME, None),
        ("a" * (MAX_NAME + 1), ("", f"metadata.name must be at most {MAX_NAME} characters")),
        ("a-9", None),
        ("1a", ("metadata.name", "should match '^[a-z]([-a-z0-9]*[a-z0-9])?$'")),
        ("a.b", ("metadata.name", "should match '^[a-z]([-a-z0-9]*[a-z0-9])?$'")),
        ("A", ("metadata.name", "a lowercase RFC 1123 subdomain")),
        ("-a", ("metadata.name", "a lowercase RFC 1123 subdomain")),
    ],
)
def test_names(api: Api, namespace_kept: str, name: str, refusal: tuple[str, str] | None) -> None:
    answer = create(api, namespace_kept, run(MINIMAL, name), dry_run=True)

    if refusal is None:
        assert answer.code == 201, answer.message
        parse_run(run(MINIMAL, name))
        return
    assert answer.code == 422
    assert any(refusal[0] in field and refusal[1] in message for field, message in answer.causes), (
        answer.causes
    )
    with pytest.raises(SpecError):
        parse_run(run(MINIMAL, name))


# -- unknown fields ----------------------------------------------------------------------------

UNKNOWN: Object = {
    "algo": {"name": "sac", "learningRate": 1},
    "task": {"name": "half_cheetah", "overrides": {"anything": {"goes": 1}}},
    "training": {"iterations": 5, "numSteps": 1},
    "env": {"device": "cpu"},
    "podTemplate": {"spec": {"containers": [{"name": "trainer", "noSuch": 1}]}},
    "restarts": 1,
    "checkpoint": {"every": 1},
}
PRUNED = ("spec.algo.learningRate", "spec.checkpoint.every", "spec.restarts")
KEPT = ("training", "env", "podTemplate")
"""The operator answers for these, and says what to use instead."""


def test_clients_that_are_strict_refuse_unknown_fields_all_at_once(
    api: Api, namespace: str
) -> None:
    answer = create(api, namespace, run(UNKNOWN))

    assert answer.code == 400
    assert sorted(part.split('"')[1] for part in answer.message.split("unknown field")[1:]) == list(
        PRUNED
    )


def test_a_plain_client_is_warned_and_unknown_fields_are_dropped(api: Api, namespace: str) -> None:
    answer = create(api, namespace, run(UNKNOWN), fields="Warn")
    stored = api.get(API_VERSION, KIND, "run", namespace)["spec"]

    assert answer.code == 201
    assert sorted(warning.split('\\"')[1] for warning in answer.warnings) == list(PRUNED)
    assert stored["algo"] == {"name": "sac"}
    assert stored["checkpoint"] == {}
    assert "restarts" not in stored
    assert stored["task"] == UNKNOWN["task"]
    assert {name: stored[name] for name in KEPT} == {name: UNKNOWN[name] for name in KEPT}


def test_an_unknown_status_field_is_refused_from_a_strict_client(api: Api, namespace: str) -> None:
    made = api.create(run(MINIMAL), namespace=namespace)
    path = f"/apis/{API_VERSION}/namespaces/{namespace}/trainingruns/run/status"
    item = made | {"status": {"progress": {"envSteps": 1, "speed": 2}}}

    assert api.ask("PUT", path, item, fieldValidation="Strict").code == 400
    answer = api.ask("PUT", path, item)
    assert answer.body["status"] == {"progress": {"envSteps": 1}}


# -- what we tell users to apply ---------------------------------------------------------------


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: str(path.relative_to(EXAMPLES))
)
def test_examples_are_accepted(api: Api, namespace: str, path: Path) -> None:
    documents = [item for item in yaml.safe_load_all(path.read_text(encoding="utf-8")) if item]
    runs = [item for item in documents if item.get("kind") == KIND]
    for item in runs:
        answer = create(api, namespace, item)
        assert answer.code == 201, answer.message
        assert not answer.warnings
