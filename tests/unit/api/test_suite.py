"""Suite files as models: what is taken, and refusals with path, value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from drivetrain_api.errors import SpecError
from drivetrain_api.suite import Suite, parse_suite


def suite(**spec: Any) -> Suite:
    document = {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "Suite",
        "metadata": {"name": "swing"},
        "spec": {"template": {"algo": {"name": "sac"}}, **spec},
    }
    return parse_suite(document)


def test_seeds_are_a_list_or_how_many() -> None:
    assert suite().spec.seed_list == (0,)
    assert suite(seeds=3).spec.seed_list == (0, 1, 2)
    assert suite(seeds=[7, 3]).spec.seed_list == (7, 3)


def test_the_root_is_named_after_the_suite_where_it_is_not_given() -> None:
    assert suite().root == "suites/swing"
    assert suite(root="results/a").root == "results/a"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"seeds": 0}, "spec.seeds: Input should be greater than or equal to 1; got 0"),
        ({"seeds": True}, "spec.seeds"),
        ({"seeds": []}, "spec.seeds: List should have at least 1 item"),
        ({"seeds": [1, -1]}, "spec.seeds.1: Input should be greater than or equal to 0; got -1"),
        ({"seeds": [4, 4]}, "spec: seeds names 4 twice"),
        ({"templateFile": "run.yaml"}, "spec: give one of template and templateFile"),
        ({"template": None}, "spec: give one of template and templateFile"),
        ({"grid": {"a": []}}, "spec.grid.a: List should have at least 1 item"),
        ({"grids": {}}, "spec.grids: Extra inputs are not permitted; got {}"),
        ({"list": [{"set": {}}]}, "spec.list.0.name: Field required"),
        ({"list": [{"name": "-a"}]}, "spec.list.0.name: String should match pattern"),
        ({"random": {"count": 0, "parameters": {"a": {"choice": [1]}}}}, "spec.random.count"),
        ({"random": {"count": 1, "parameters": {}}}, "spec.random.parameters"),
    ],
)
def test_refusals_name_the_path(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as refused:
        suite(**spec)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("drawn", "words"),
    [
        ({}, "give one of uniform, logUniform, integer, choice; got none"),
        ({"uniform": [0, 1], "choice": [1]}, "got uniform and choice"),
        ({"uniform": [1.0, 1.0]}, "the lowest value comes first; got 1.0, 1.0"),
        ({"integer": [3, 1]}, "the lowest value comes first; got 3, 1"),
        ({"integer": [1.5, 2]}, "integer.0"),
        ({"logUniform": [0.0, 1.0]}, "logUniform needs values above 0; got 0.0"),
        ({"logUniform": [1.0]}, "logUniform.1"),
        ({"uniform": [-1.7e308, 1.7e308]}, "spans more than a number holds"),
        ({"uniform": [float("nan"), 1.0]}, "uniform.0"),
        ({"choice": []}, "choice"),
    ],
)
def test_a_distribution_that_nothing_can_be_drawn_from_is_refused(
    drawn: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError) as refused:
        suite(random={"count": 2, "parameters": {"algo.tau": drawn}})
    assert "spec.random.parameters.algo.tau" in str(refused.value)
    assert words in str(refused.value)
