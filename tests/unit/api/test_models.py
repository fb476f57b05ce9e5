"""Every model of the contract: exact scalars, frozen, closed, and the same after a round trip."""

from __future__ import annotations

import importlib
import json
import math
import pkgutil
import types
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

import drivetrain_api
from drivetrain_api.artifacts.base import ArtifactModel
from drivetrain_api.attempt import AttemptSpec
from drivetrain_api.base import ApiModel
from drivetrain_api.compose import parse_run
from drivetrain_api.digest import Digest
from drivetrain_api.errors import SpecError
from drivetrain_api.schema import inlined_schema
from drivetrain_api.trainingrun import TrainingRun, TrainingRunSpec

LOOSE = {
    "ObjectMeta.labels": "the API server has checked them",
    "ObjectMeta.annotations": "the API server has checked them",
    "TrainingRunSpec.pod_template": "an embedded Kubernetes type",
    "RunConfig.pod_template": "an embedded Kubernetes type",
    "SuiteMetadata.labels": "the API server checks them",
    "SuiteSpec.template": "read as the spec of a TrainingRun",
    "SuiteRecord.template": "read as the spec of a TrainingRun",
}
"""Fields whose maps need no bounds of ours."""


def every_model() -> list[type[BaseModel]]:
    for module in pkgutil.walk_packages(drivetrain_api.__path__, "drivetrain_api."):
        importlib.import_module(module.name)
    found: list[type[BaseModel]] = []
    waiting = list(ApiModel.__subclasses__())
    while waiting:
        model = waiting.pop()
        if model.__module__.startswith("drivetrain_api.") and model not in found:
            found.append(model)
        waiting += model.__subclasses__()
    return sorted(found, key=lambda model: model.__qualname__)


MODELS = every_model()


def scalars(annotation: Any, metadata: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Scalar types below an annotation, each with the metadata that constrains it."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *extra = get_args(annotation)
        yield from scalars(inner, [*extra, *metadata])
    elif origin in (Union, types.UnionType):
        for branch in get_args(annotation):
            yield from scalars(branch, metadata)
    elif origin in (tuple, list, dict):
        for item in get_args(annotation):
            if item is not Ellipsis:
                yield from scalars(item, [])
    elif annotation in (int, float, bool, str):
        yield annotation, metadata


SCALARS = [
    pytest.param(kind, metadata, id=f"{model.__name__}.{name}.{kind.__name__}")
    for model in MODELS
    for name, field in model.model_fields.items()
    if f"{model.__name__}.{name}" not in LOOSE
    for kind, metadata in scalars(field.annotation, list(field.metadata))
]
WRONG: dict[type, list[Any]] = {
    int: [True, "1", 1.0, 1.5, math.nan],
    float: [True, "1", math.nan, math.inf, -math.inf],
    bool: [1, 0, "true", "yes", 1.0],
    str: [1, True, 1.5, b"text"],
}


def adapter_of(kind: Any, metadata: list[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[(kind, *metadata)] if metadata else kind)


def test_the_walk_finds_the_models() -> None:
    assert {"TrainingRunSpec", "SacConfig", "RunSummary", "Digest", "AttemptSpec"} <= {
        model.__name__ for model in MODELS
    }
    assert len(SCALARS) > 150


@pytest.mark.parametrize(("kind", "metadata"), SCALARS)
def test_a_scalar_takes_its_own_type_alone(kind: type, metadata: list[Any]) -> None:
    adapter = adapter_of(kind, metadata)

    for value in WRONG[kind]:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


@pytest.mark.parametrize(("kind", "metadata"), SCALARS)
def test_an_integer_and_a_text_are_bounded(kind: type, metadata: list[Any]) -> None:
    schema = adapter_of(kind, metadata).json_schema()

    if kind is int:
        assert "minimum" in schema
        assert "maximum" in schema
    if kind is str:
        assert "maxLength" in schema


OPEN = {
    "ObjectMeta": "ignore",
    "SuiteMetadata": "ignore",
    # What these hold beside their stable fields is their producer's own.
    "InferenceMemoryEvidence": "allow",
    "OptimizationState": "allow",
    "BackendDiagnostics": "allow",
}
REWRITTEN = "drivetrain_api.timings."
"""What stands in files that older versions write back whole: unknown keys are kept."""
RENAMED = {"ListedVariant.overrides": "set", "SuiteSpec.listed": "list"}
"""Words of the file that Python has for its own."""


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_model_is_frozen_closed_and_described(model: type[BaseModel]) -> None:
    assert model.model_config["frozen"]
    kept = model.__module__.startswith(REWRITTEN)
    assert model.model_config["extra"] == ("allow" if kept else OPEN.get(model.__name__, "forbid"))
    assert model.__doc__
    for name, field in model.model_fields.items():
        assert field.description, f"{model.__name__}.{name}"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_field_is_camel_case_on_the_wire_but_in_artifacts(model: type[BaseModel]) -> None:
    if issubclass(model, ArtifactModel):
        return
    for name, field in model.model_fields.items():
        assert field.alias == RENAMED.get(f"{model.__name__}.{name}", to_camel(name))


# -- round trips -------------------------------------------------------------------------------


def instances(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Valid JSON values of a generated schema; optional keys are there or not."""
    if "anyOf" in schema:
        return st.one_of([instances(branch) for branch in schema["anyOf"]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    built: st.SearchStrategy[Any] = BUILDERS[schema.get("type", "any")](schema)
    return built


def _object(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "properties" not in schema:
        values = schema.get("additionalProperties")
        value = instances(values) if isinstance(values, dict) else st.none() | st.text(max_size=5)
        return st.dictionaries(st.text("abc.", max_size=3), value, max_size=2)
    required = set(schema.get("required", ()))
    properties = {name: instances(child) for name, child in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: child for name, child in properties.items() if name in required},
        optional={name: child for name, child in properties.items() if name not in required},
    )


def _list(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    fixed = schema.get("prefixItems")
    if fixed is not None:
        return st.tuples(*[instances(item) for item in fixed]).map(list)
    return st.lists(
        instances(schema["items"]),
        min_size=schema.get("minItems", 0),
        max_size=min(schema.get("maxItems", 3), 3),
    )


def _text(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if schema.get("format") == "date-time":
        return st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
    most, least = schema.get("maxLength", 8), schema.get("minLength", 0)
    if "pattern" in schema:
        return st.from_regex(schema["pattern"], fullmatch=True).filter(
            lambda text: least <= len(text) <= most
        )
    return st.text(st.characters(codec="utf-8"), min_size=least, max_size=min(most, 8))


def _number(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    return st.floats(
        min_value=schema.get("minimum", schema.get("exclusiveMinimum")),
        max_value=schema.get("maximum"),
        exclude_min="exclusiveMinimum" in schema,
        allow_nan=False,
        allow_infinity=False,
    )


BUILDERS: dict[str, Any] = {
    "object": _object,
    "array": _list,
    "string": _text,
    "number": _number,
    "integer": lambda schema: st.integers(schema["minimum"], schema.get("maximum", 2**63 - 1)),
    "boolean": lambda _: st.booleans(),
    "null": lambda _: st.none(),
    "any": lambda _: st.none() | st.booleans() | st.integers() | st.text(max_size=5),
}
SLOW = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize(
    ("model", "by_alias"),
    [(TrainingRun, True), (AttemptSpec, True), (Digest, True), (TrainingRunSpec, False)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@SLOW
@given(data=st.data())
def test_what_is_dumped_parses_to_an_equal_model(
    model: type[BaseModel], by_alias: bool, data: st.DataObject
) -> None:
    document = data.draw(instances(inlined_schema(model, by_alias=by_alias)))
    parsed = model.model_validate(document)

    whole = model.model_validate(parsed.model_dump(mode="json", by_alias=True))
    written = parsed.model_dump(mode="json", by_alias=True, exclude_unset=True)
    again = model.model_validate_json(json.dumps(written))

    assert whole == parsed
    assert again == parsed
    assert again.model_dump(exclude_unset=True) == parsed.model_dump(exclude_unset=True)
    assert list(paths(written)) == list(paths(again.model_dump(by_alias=True, exclude_unset=True)))


def paths(node: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for key in sorted(node):
            yield f"{prefix}.{key}"
            yield from paths(node[key], f"{prefix}.{key}")


@SLOW
@given(data=st.data())
def test_no_document_ends_in_anything_but_a_run_or_a_refusal(data: st.DataObject) -> None:
    document = data.draw(instances(inlined_schema(TrainingRun, by_alias=True)))
    holder = data.draw(st.sampled_from(list(objects(document))))
    key = data.draw(st.sampled_from([*sorted(holder), "unknownKey"]))
    holder[key] = data.draw(ANY_JSON)

    try:
        parsed = parse_run(document)
    except SpecError as refused:
        outcome: Any = refused
    else:
        outcome = parsed

    assert isinstance(outcome, TrainingRun) or all(v.message for v in outcome.violations)


def objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from objects(child)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def test_enumerations_of_the_status_are_camel_case() -> None:
    status = importlib.import_module("drivetrain_api.status")
    for enum in (status.ConditionType, status.Reason, status.Phase):
        for member in enum:
            assert isinstance(member, Enum)
            assert member.value[0].isupper()
            assert member.value.isalnum()


def test_a_literal_or_a_json_value_is_no_loose_scalar() -> None:
    assert list(scalars(Literal[1], [])) == []
    assert list(scalars(JsonValue, [])) == []
