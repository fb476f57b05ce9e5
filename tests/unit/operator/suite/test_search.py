"""Variants of a grid, a list and a random search: how many, which, and always the same."""

from __future__ import annotations

import itertools
import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_api.errors import SpecError
from drivetrain_api.suite import SuiteSpec
from drivetrain_operator.suite.search import DEFAULT, Variant, variants_of

PATHS = ["algo.tau", "algo.gamma", "algo.num_envs", "training.log_interval", "env.x"]
SCALARS = (
    st.integers(-1000, 1000)
    | st.floats(1e-6, 1e6, allow_nan=False)
    | st.text(max_size=8)
    | st.booleans()
    | st.lists(st.integers(1, 512), max_size=3)
)
GRIDS = st.dictionaries(
    st.sampled_from(PATHS),
    st.lists(SCALARS, min_size=1, max_size=4, unique_by=lambda v: json.dumps(v, sort_keys=True)),
    min_size=1,
    max_size=4,
)
LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def variants(**search: Any) -> tuple[Variant, ...]:
    return variants_of(SuiteSpec.model_validate({"template": {"algo": {}}, **search}))


@given(GRIDS)
def test_a_grid_has_each_combination_once_and_each_name_is_a_label(
    grid: dict[str, list[Any]],
) -> None:
    found = variants(grid=grid)
    assert len(found) == math.prod(len(values) for values in grid.values())
    wanted = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    assert [dict(v.overrides) for v in found] == wanted, "the last path changes fastest"
    assert len({v.name for v in found}) == len(found)
    assert all(LABEL.fullmatch(v.name) for v in found), [v.name for v in found]
    assert variants(grid=grid) == found


@given(GRIDS, st.data())
def test_values_at_the_end_of_a_grid_leave_the_other_variants_as_they_were(
    grid: dict[str, list[Any]], data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(sorted(grid)))
    value = 123_456.5
    names = {json.dumps(v.overrides): v.name for v in variants(grid=grid)}
    more = {
        json.dumps(v.overrides): v.name for v in variants(grid={**grid, path: [*grid[path], value]})
    }
    assert names.items() <= more.items()


RANDOM = {
    "algo.critic_learning_rate": {"logUniform": [1e-5, 1e-2]},
    "algo.tau": {"uniform": [0.01, 0.5]},
    "algo.num_envs": {"integer": [1, 64]},
    "algo.activation": {"choice": ["relu", "tanh"]},
}


@given(st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_draws_are_different_in_bounds_and_the_same_again(count: int, seed: int) -> None:
    found = variants(random={"count": count, "seed": seed, "parameters": RANDOM})
    assert len(found) == len({json.dumps(v.overrides) for v in found}) == count
    assert len({v.name for v in found}) == count
    for variant in found:
        rate, tau, envs, activation = variant.overrides.values()
        assert isinstance(rate, float)
        assert 1e-5 <= rate <= 1e-2
        assert isinstance(tau, float)
        assert 0.01 <= tau <= 0.5
        assert isinstance(envs, int)
        assert 1 <= envs <= 64
        assert activation in {"relu", "tanh"}
    assert variants(random={"count": count, "seed": seed, "parameters": RANDOM}) == found
    fewer = variants(random={"count": max(1, count // 2), "seed": seed, "parameters": RANDOM})
    assert found[: len(fewer)] == fewer, "more draws leave the first as they were"


def test_draws_are_the_same_on_every_machine_and_spread_over_what_they_are_drawn_from() -> None:
    found = variants(random={"count": 400, "seed": 7, "parameters": RANDOM})
    assert [v.name for v in found[:2]] == ["draw-000", "draw-001"]
    rates = [float(str(v.overrides["algo.critic_learning_rate"])) for v in found]
    for low in (1e-5, 1e-4, 1e-3):
        share = sum(low <= rate < 10 * low for rate in rates) / len(rates)
        assert 0.25 < share < 0.42, "each order of magnitude is as likely"
    assert {v.overrides["algo.num_envs"] for v in found} >= {1, 64}, "both ends are possible"
    assert variants(random={"count": 400, "seed": 8, "parameters": RANDOM}) != found


FIRST = {
    "algo.critic_learning_rate": 0.000449639,
    "algo.tau": 0.107434,
    "algo.num_envs": 20,
    "algo.activation": "tanh",
}


def test_the_first_draw_of_seed_0() -> None:
    """Changes where the drawing does: suites that were begun could not be resumed."""
    (first,) = variants(random={"count": 1, "seed": 0, "parameters": RANDOM})
    assert first == Variant("draw-000", FIRST)


def test_a_suite_that_searches_nothing_has_one_variant() -> None:
    assert variants() == (Variant(DEFAULT, {}),)


def test_names_tell_the_values() -> None:
    found = variants(
        grid={"algo.actor_learning_rate": [3e-4, 1e-3], "algo.actorHidden": [[64, 64]]}
    )
    assert [v.name for v in found] == [
        "actor_learning_rate-0.0003_actor_hidden-64x64",
        "actor_learning_rate-0.001_actor_hidden-64x64",
    ]
    alike = variants(grid={"algo.seeds": ["a b", "a-b"]})
    assert all(re.fullmatch(r"v[0-9a-f]{7}", v.name) for v in alike), "they would be one name"
    long = variants(grid={"algo.tau": ["x" * 80]})
    assert re.fullmatch(r"v[0-9a-f]{7}", long[0].name)


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({"grid": {"seed": [1, 2]}}, "spec.grid.seed: cannot be searched: seeds sets it"),
        ({"grid": {"spec.seed": [1, 2]}}, "spec.grid.spec.seed: cannot be searched"),
        ({"grid": {"algo.seed": [1]}}, "algo.seed: cannot be searched: it would be one for all"),
        ({"grid": {"training.logDir": ["x"]}}, "cannot be searched: the suite decides where"),
        ({"grid": {"metadata.name": ["x"]}}, "cannot be searched: the suite names its members"),
        ({"grid": {"experiment.runIdx": [1]}}, "cannot be searched: the suite writes it"),
        ({"grid": {"algo.tau": [0.1, 0.1]}}, "spec.grid.algo.tau: names 0.1 2 times"),
        ({"grid": {"algo.num_envs": [1], "algo.numEnvs": [2]}}, "in another spelling"),
        (
            {"grid": {f"algo.k{i}": [1, 2] for i in range(10)}},
            "spec.grid: makes 1024 combinations; at most 1000 are allowed",
        ),
        ({"list": [{"name": "a"}, {"name": "a"}]}, "spec.list: names variant 'a' 2 times"),
        ({"list": [{"name": "a", "set": {"seed": 1}}]}, "spec.list.0.set.seed: cannot be"),
        (
            {"random": {"count": 5, "parameters": {"algo.tau": {"choice": [0.1, 0.2]}}}},
            "spec.random.count: 5 different draws were not found, 2 were",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_searched_is_refused_with_the_path(
    search: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError) as refused:
        variants(**search)
    assert words in str(refused.value)
