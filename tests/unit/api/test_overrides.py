"""Overrides: exact values, either spelling, and refusals that say what was meant."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_api.compose import parse_run
from drivetrain_api.errors import SpecError
from drivetrain_api.overrides import apply_overrides, parse_value

BASE: dict[str, Any] = {
    "metadata": {"name": "run"},
    "spec": {
        "algo": {"name": "sac", "numEnvs": 8},
        "task": {"name": "toy"},
        "training": {"total_env_steps": 5},
    },
}


def refusals(*overrides: str, document: dict[str, Any] = BASE) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        apply_overrides(document, overrides)
    return {violation.path: violation.message for violation in caught.value.violations}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64", 64),
        ("-1", -1),
        ("1.0", 1.0),
        ("1e-3", 0.001),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ('"64"', "64"),
        ("tensorboard", "tensorboard"),
        ("[256, 128]", [256, 128]),
        ("[]", []),
        ('{"a": 1}', {"a": 1}),
        ("", ""),
        ("a=b", "a=b"),
        ("1_000", "1_000"),
        ("yes", "yes"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_a_value_is_exact(text: str, value: Any) -> None:
    parsed = parse_value(text)

    assert parsed == value
    assert type(parsed) is type(value)


def test_nan_stays_nan_for_parsing_to_refuse() -> None:
    document = apply_overrides(BASE, ["algo.gamma=NaN"])

    assert math.isnan(document["spec"]["algo"]["gamma"])
    with pytest.raises(SpecError, match=r"algo\.gamma: must be a finite number .* got NaN"):
        parse_run(document)


@given(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text())
def test_json_scalars_round_trip(value: Any) -> None:
    import json  # noqa: PLC0415 - the encoder under comparison, used here alone

    parsed = parse_value(json.dumps(value))

    assert parsed == value
    assert type(parsed) is type(value)


def test_an_override_replaces_the_spelling_that_is_there() -> None:
    document = apply_overrides(BASE, ["algo.num_envs=64", "training.totalEnvSteps=9"])

    assert document["spec"]["algo"] == {"name": "sac", "numEnvs": 64}
    assert document["spec"]["training"] == {"total_env_steps": 9}


def test_new_keys_take_the_spelling_of_the_wire() -> None:
    document = apply_overrides({}, ["algo.batch_size=64", "pod_template.spec.hostNetwork=true"])

    assert document == {
        "spec": {"algo": {"batchSize": 64}, "podTemplate": {"spec": {"hostNetwork": True}}}
    }


def test_the_document_is_left_alone() -> None:
    before = copy.deepcopy(BASE)

    apply_overrides(BASE, ["algo.num_envs=64", "training.iterations=1"])

    assert before == BASE


def test_the_last_override_of_a_key_wins() -> None:
    document = apply_overrides(BASE, ["algo.num_envs=64", "algo.numEnvs=65"])

    assert document["spec"]["algo"]["numEnvs"] == 65


def test_metadata_and_the_spec_prefix_can_be_named() -> None:
    document = apply_overrides(
        BASE, ["metadata.name=other", "spec.seed=3", "metadata.labels.example.com/team=x"]
    )

    assert document["metadata"] == {"name": "other", "labels": {"example.com/team": "x"}}
    assert document["spec"]["seed"] == 3


def test_a_map_of_scalars_takes_dotted_keys_whole() -> None:
    document = apply_overrides(BASE, ["task.overrides.a.b=1"])

    assert document["spec"]["task"]["overrides"] == {"a.b": 1}


def test_an_empty_section_is_filled() -> None:
    document = apply_overrides({"spec": {"algo": None}}, ["algo.name=sac"])

    assert document["spec"]["algo"] == {"name": "sac"}


@pytest.mark.parametrize(
    ("overrides", "training"),
    [
        (["training.iterations=7"], {"iterations": 7}),
        (["training.iterations=null"], {"total_env_steps": 5, "iterations": None}),
        (
            ["training.iterations=7", "training.total_env_steps=6"],
            {"iterations": 7, "total_env_steps": 6},
        ),
        (["training.total_env_steps=6"], {"total_env_steps": 6}),
    ],
)
def test_a_length_on_the_command_line_displaces_the_manifests(
    overrides: list[str], training: dict[str, Any]
) -> None:
    assert apply_overrides(BASE, overrides)["spec"]["training"] == training


def test_a_section_replaced_later_takes_the_length_with_it() -> None:
    document = apply_overrides(BASE, ["training.iterations=7", "training=5"])

    assert document["spec"]["training"] == 5


@pytest.mark.parametrize(
    ("override", "path", "part"),
    [
        ("num_envs=3", "num_envs", "did you mean algo.num_envs (algo.numEnvs)?"),
        ("algo.num_env=3", "algo.num_env", "did you mean algo.num_envs"),
        ("algo.numEnv=3", "algo.num_env", "did you mean algo.num_envs"),
        ("trainng.logger=x", "trainng", "did you mean training?"),
        ("status.phase=x", "status", "unknown key"),
        ("metadata.foo=x", "metadata.foo", "unknown key"),
        ("training.simCarrierDevice=x", "training.sim_carrier_device", "was removed"),
        ("env.manager_torch_device=x", "env.manager_torch_device", "env.collector_tensor_device"),
        ("algo.num_envs.x=3", "algo.num_envs", "holds no keys"),
        ("algo.actor_hidden.0=3", "algo.actor_hidden", "a list of 1 to 16 items"),
        ("algo.num_envs", "", '"algo.num_envs" is not of the form key=value'),
        ("=3", "", "key=value"),
        ("a..b=3", "", "key=value"),
        ('task.overrides={"a":1,"a":2}', "task.overrides", 'names key "a" twice'),
        ("algo.actor_hidden=" + "[" * 100_000, "algo.actor_hidden", "nested too deeply"),
    ],
)
def test_a_refused_override_names_its_path(override: str, path: str, part: str) -> None:
    found = refusals(override)

    assert list(found) == [path]
    assert part in found[path]


def test_a_section_that_is_no_mapping_is_refused() -> None:
    found = refusals("algo.num_envs=3", document={"spec": {"algo": [1]}})

    assert found == {"algo": "must be a mapping; got [1]"}


def test_every_refused_override_is_reported() -> None:
    assert set(refusals("num_envs=3", "x", "algo.gama=1")) == {"num_envs", "", "algo.gama"}
