"""The CustomResourceDefinition: no drift, and nothing that the API conventions forbid."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from drivetrain_api import crd
from drivetrain_api.crd_rules import IMMUTABLE, MAX_NAME, RULES
from drivetrain_api.trainingrun import TrainingRunSpec

REPOSITORY = Path(__file__).parents[2]
DEFINITION = crd.custom_resource_definition()
VERSION = DEFINITION["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]

MAPS = {
    ".spec.task.overrides": "keyword arguments of a user's own function",
    ".spec.podTemplate": "an embedded Kubernetes type",
}
"""Maps where the conventions want lists, each with its reason."""
KEEP_UNKNOWN = {
    ".spec.training": "retired keys are answered by the operator",
    ".spec.env": "retired keys are answered by the operator",
    ".spec.podTemplate": "an embedded Kubernetes type",
    ".spec.task.overrides.*": "a scalar of any type",
}
FORBIDDEN_KEYS = ("default", "$ref", "title", "anyOf", "oneOf", "allOf", "const", "prefixItems")


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}.*")


def findings(schema: dict[str, Any]) -> list[str]:
    """Everything in a resource's schema that the API conventions, or we, forbid."""
    return [
        f"{path or '.'}: {problem}"
        for path, node in walk(schema)
        if not path.startswith(".metadata")
        for check in (_shape, _name, _description, _bounds, _lists, _maps, _status)
        for problem in check(path, node)
    ]


def _shape(path: str, node: dict[str, Any]) -> Iterator[str]:
    for key in FORBIDDEN_KEYS:
        if key in node:
            yield f"has {key}"
    if node.get("additionalProperties") is False:
        yield "additionalProperties false: unknown fields are pruned, not described"
    keeps = node.get("x-kubernetes-preserve-unknown-fields", False)
    if keeps and path not in KEEP_UNKNOWN:
        yield "keeps unknown fields"
    if "type" not in node and not keeps:
        yield "has no type"


def _name(path: str, _: dict[str, Any]) -> Iterator[str]:
    name = path.rpartition(".")[2].removesuffix("[]")
    if name not in ("", "*") and not re.fullmatch(r"[a-z][a-z0-9]*([A-Z][a-z0-9]*)*", name):
        yield "name is not lowerCamelCase"


def _description(path: str, node: dict[str, Any]) -> Iterator[str]:
    text = node.get("description", "")
    if path.endswith((".*", "[]")):
        return
    if not text or not text.endswith("."):
        yield "has no description that is a sentence"


def _bounds(path: str, node: dict[str, Any]) -> Iterator[str]:
    kind = node.get("type")
    if kind == "integer" and (
        node.get("format") not in ("int32", "int64") or "minimum" not in node
    ):
        yield "integer without format and bounds"
    if kind == "number" and not {"minimum", "maximum"} <= set(node):
        yield "unbounded float"
    free = "enum" not in node and node.get("format") != "date-time"
    if kind == "string" and free and "maxLength" not in node and path.count(".") > 1:
        yield "unbounded string"
    for bound in ("exclusiveMinimum", "exclusiveMaximum"):
        if bound in node and node[bound] is not True:
            yield f"{bound} is a flag beside the bound"


def _lists(_: str, node: dict[str, Any]) -> Iterator[str]:
    if node.get("type") != "array":
        return
    if "maxItems" not in node:
        yield "unbounded list"
    kind = node.get("x-kubernetes-list-type")
    if kind not in ("atomic", "set", "map"):
        yield "list without a list type"
    required = node.get("items", {}).get("required", ())
    if kind == "map" and not set(node["x-kubernetes-list-map-keys"]) <= set(required):
        yield "map keys are not required in its items"


def _maps(path: str, node: dict[str, Any]) -> Iterator[str]:
    if node.get("type") != "object" or "properties" in node:
        return
    if path not in MAPS:
        yield "a map where a list of named items belongs"
    if "additionalProperties" in node and "maxProperties" not in node:
        yield "unbounded map"


def _status(path: str, node: dict[str, Any]) -> Iterator[str]:
    if not path.startswith(".status"):
        return
    if node.get("type") == "number":
        yield "float in status"
    if "nullable" in node:
        yield "nullable in status: leave it out instead"


# -- drift -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [crd.COMMITTED, crd.CHART_COPY], ids=str)
def test_the_committed_files_are_what_the_models_give(path: Path) -> None:
    committed = (REPOSITORY / path).read_text(encoding="utf-8")

    assert committed == crd.render(), "run python -m drivetrain_api.crd"


def test_the_file_reads_back_as_the_definition() -> None:
    text = crd.render()

    assert yaml.safe_load(text) == DEFINITION
    assert "&id" not in text


def test_checking_fails_on_any_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "crd.yaml"

    assert crd.main(["--check", "--path", str(path)]) == 1
    assert crd.main(["--path", str(path)]) == 0
    assert crd.main(["--check", "--path", str(path)]) == 0
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert crd.main(["--check", "--path", str(path)]) == 1
    assert "differs from the models" in capsys.readouterr().err


# -- conventions -------------------------------------------------------------------------------


def test_the_schema_keeps_to_the_conventions() -> None:
    assert findings(SCHEMA) == []


def test_no_exemption_is_idle() -> None:
    nodes = dict(walk(SCHEMA))

    assert all("properties" not in nodes[path] for path in MAPS)
    assert all(nodes[path]["x-kubernetes-preserve-unknown-fields"] for path in KEEP_UNKNOWN)


@pytest.mark.parametrize(
    ("path", "change", "finding"),
    [
        (".spec.seed", {"default": 0}, "has default"),
        (".spec.seed", {"title": "Seed"}, "has title"),
        (".spec.topology", {"additionalProperties": False}, "additionalProperties false"),
        (".spec.topology", {"x-kubernetes-preserve-unknown-fields": True}, "keeps unknown"),
        (".spec.seed", {"type": None}, "has no type"),
        (".spec.seed", {"description": ""}, "no description"),
        (".spec.seed", {"format": None}, "integer without format"),
        (".spec.seed", {"minimum": None}, "integer without format and bounds"),
        (".spec.algo.gamma", {"maximum": None}, "unbounded float"),
        (".spec.algo.tau", {"exclusiveMinimum": 0}, "exclusiveMinimum is a flag"),
        (".spec.task.name", {"maxLength": None}, "unbounded string"),
        (".spec.algo.actorHidden", {"maxItems": None}, "unbounded list"),
        (".spec.algo.actorHidden", {"x-kubernetes-list-type": None}, "without a list type"),
        (".status.conditions", {"x-kubernetes-list-map-keys": ["message"]}, "map keys"),
        (".spec.task.overrides", {"maxProperties": None}, "unbounded map"),
        (".status.progress", {"properties": None}, "a map where a list"),
        (".status.attempt", {"type": "number"}, "float in status"),
        (".status.attempt", {"nullable": True}, "nullable in status"),
    ],
)
def test_the_walk_finds_what_is_forbidden(path: str, change: dict[str, Any], finding: str) -> None:
    schema = copy.deepcopy(SCHEMA)
    node = dict(walk(schema))[path]
    for key, value in change.items():
        if value is None:
            del node[key]
        else:
            node[key] = value

    assert [found for found in findings(schema) if found.startswith(path) and finding in found]


def test_the_walk_finds_a_bad_name() -> None:
    schema = copy.deepcopy(SCHEMA)
    properties = schema["properties"]["spec"]["properties"]
    properties["max_restarts"] = properties["seed"]

    assert findings(schema) == [".spec.max_restarts: name is not lowerCamelCase"]


# -- content -----------------------------------------------------------------------------------


def test_names_scope_and_subresource() -> None:
    spec = DEFINITION["spec"]

    assert DEFINITION["metadata"]["name"] == "trainingruns.drivetrain.dev"
    assert spec["names"]["shortNames"] == ["trun", "tr"]
    assert spec["scope"] == "Namespaced"
    assert VERSION["name"] == "v1alpha1"
    assert VERSION["subresources"] == {"status": {}}


def test_the_columns_are_the_designs_and_point_at_fields() -> None:
    columns = VERSION["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if "priority" not in column]
    nodes = dict(walk(SCHEMA))

    assert shown == [
        "Phase",
        "Algo",
        "Task",
        "Ranks",
        "Progress",
        "Steps/s",
        "Reward",
        "Restarts",
        "Age",
    ]
    for column in columns:
        if not column["jsonPath"].startswith(".metadata"):
            assert nodes[column["jsonPath"]]["type"] == column["type"]


def test_what_a_manifest_must_say() -> None:
    nodes = dict(walk(SCHEMA))

    assert nodes[""]["required"] == ["metadata", "spec"]
    assert nodes[".spec"]["required"] == ["algo", "task"]
    assert nodes[".spec.algo"]["required"] == ["name"]
    assert nodes[".spec.task"]["required"] == ["name"]


def test_a_default_is_said_and_not_set() -> None:
    nodes = dict(walk(SCHEMA))

    assert nodes[".spec.algo.numEnvs"]["description"].endswith(
        "Default: 4096, or the task's preset."
    )
    assert nodes[".spec.restart.maxRestarts"]["description"].endswith("Default: 3.")
    assert "Default" not in nodes[".spec.algo.name"]["description"]


def test_an_exclusive_bound_is_a_flag_beside_the_bound() -> None:
    tau = dict(walk(SCHEMA))[".spec.algo.tau"]

    assert (tau["minimum"], tau["exclusiveMinimum"], tau["maximum"]) == (0, True, 1)
    assert "exclusiveMaximum" not in tau


def test_null_stands_for_unset_where_a_field_may_be_unset() -> None:
    nodes = dict(walk(SCHEMA))
    nullable = {path for path, node in nodes.items() if node.get("nullable")}

    assert ".spec.training.replayIngressSlotRows" in nullable
    assert ".spec.algo.numEnvs" not in nullable
    assert not any(path.startswith(".status") for path in nullable)


# -- rules -------------------------------------------------------------------------------------


def rules(path: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = dict(walk(SCHEMA))[path]["x-kubernetes-validations"]
    return found


def test_every_rule_is_in_the_schema_and_names_a_field_that_exists() -> None:
    nodes = dict(walk(SCHEMA))

    for place in RULES:
        path = f".{place}" if place else ""
        for rule in rules(path):
            assert rule["message"]
            if "fieldPath" in rule:
                assert f"{path}{rule['fieldPath']}" in nodes


def test_what_a_rule_names_is_a_field() -> None:
    nodes = dict(walk(SCHEMA))

    for place in RULES:
        path = f".{place}" if place else ""
        for rule in rules(path):
            for field in re.findall(r"(?:self|oldSelf)((?:\.[a-z]\w*)+)", rule["rule"]):
                if not field.startswith(".metadata"):
                    assert f"{path}{field}" in nodes, rule


@pytest.mark.parametrize("field", IMMUTABLE)
def test_immutability_stands_on_the_parent(field: str) -> None:
    (rule,) = [rule for rule in rules(".spec") if rule.get("fieldPath") == f".{field}"]

    assert f"self.{field} == oldSelf.{field}" in rule["rule"]
    required = field in SCHEMA["properties"]["spec"]["required"]
    nullable = SCHEMA["properties"]["spec"]["properties"][field].get("nullable", False)
    there = "(has({0}) && dyn({0}) != null)" if nullable else "has({0})"
    kept = f"{there.format(f'self.{field}')} == {there.format(f'oldSelf.{field}')}"
    assert (kept in rule["rule"]) != required
    assert rule["message"].startswith(f"{field} is immutable")


def test_what_stays_mutable() -> None:
    frozen = {
        rule.get("fieldPath", "").split(".")[1]
        for rule in rules(".spec")
        if "immutable" in rule["message"]
    }

    assert frozen == {*IMMUTABLE, "checkpoint"}
    assert {"suspend", "ttlSecondsAfterFinished", "deadlines", "restart", "soak"} <= set(
        SCHEMA["properties"]["spec"]["properties"]
    ) - frozen


def test_the_length_of_a_name_is_the_models() -> None:
    assert f"<= {MAX_NAME}" in rules("")[0]["rule"]
    assert MAX_NAME == 50


def test_every_field_of_the_spec_is_in_the_schema() -> None:
    names = {field.alias for field in TrainingRunSpec.model_fields.values()}

    assert set(SCHEMA["properties"]["spec"]["properties"]) == names
