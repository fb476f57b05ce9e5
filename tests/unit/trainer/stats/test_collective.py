"""Exports of two and of three real ranks."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rank_group import run_ranks

SCRIPT = Path(__file__).with_name("export_rank.py")
EQUAL = ["all_gather", "all_reduce", "all_reduce"]
DIFFERENT = ["all_gather", "all_gather", "all_reduce", "all_reduce"]

Ranks = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return run_ranks(SCRIPT, tmp_path_factory.mktemp("group"), request.param)


def outcome(ranks: Ranks, case: str) -> Any:
    return copy.copy(ranks[0][case]["outcome"])


def test_every_rank_gets_the_same_figures_bit_for_bit(ranks: Ranks) -> None:
    for case in ranks[0]:
        assert len({json.dumps(rank[case]["outcome"]) for rank in ranks}) == 1, case


def test_every_element_of_every_rank_weighs_the_same(ranks: Ranks) -> None:
    # Rank r holds the value r in r + 1 elements.
    elements = [float(rank) for rank in range(len(ranks)) for _ in range(rank + 1)]
    mean, last = sum(elements) / len(elements), float(len(ranks) - 1)
    assert outcome(ranks, "equal_keys") == pytest.approx(
        {
            "n": len(elements),
            "full/avg": mean,
            "full/min": 0.0,
            "full/max": last,
            "compact/avg": mean,
            "compact/min": 0.0,
            "compact/max": last,
            "avg": mean,
            "sum": sum(elements),
            "min": 0.0,
            "max": last,
            "scalar": mean,
            "scalar__count": len(elements),
        }
    )


def test_ranks_may_hold_different_keys_and_trackers(ranks: Ranks) -> None:
    exported = outcome(ranks, "different_keys")
    assert 0.0 <= exported.pop("timeperf/save") < 1.0
    mean = sum(range(len(ranks))) / (len(ranks) - 1)
    expected = {
        "only_first": 5.0,
        "only_first__count": 1.0,
        "timeperf/save__count": 1.0,
        "eval-rollout/reward": 0.0,
        "eval-rollout/reward__count": 1.0,
        "eval-rollout/é": 1.0,
        "eval-rollout/é__count": 1.0,
        "rollout/reward": mean,
        "rollout/reward__count": len(ranks) - 1,
        "rollout/é": 1.0,
        "rollout/é__count": len(ranks) - 1,
    }
    for rank in range(len(ranks)):
        expected |= {f"n{rank}": 1.0}
        expected |= {f"x{rank}/{name}": float(rank) for name in ("avg", "min", "max")}
    assert exported == expected


def test_one_ranks_nan_is_every_ranks(ranks: Ranks) -> None:
    exported = outcome(ranks, "nan_on_one_rank")
    assert exported.pop("n") == len(ranks)
    assert set(exported) == {"x/avg", "x/min", "x/max", "greatest", "least"}
    assert all(math.isnan(value) for value in exported.values())


def test_infinities_are_elements(ranks: Ranks) -> None:
    assert outcome(ranks, "infinities") == {
        "n": len(ranks),
        "x/avg": -math.inf,
        "x/min": -math.inf,
        "x/max": -math.inf,
        "greatest": math.inf,
    }


def test_a_rank_without_valid_elements_does_not_weigh_in(ranks: Ranks) -> None:
    others = range(1, len(ranks))
    assert outcome(ranks, "empty_on_the_first_rank") == {
        "n": len(ranks) - 1,
        "none": 0.0,
        "z": 0.0,
        "x/avg": sum(others) / len(others),
        "x/min": 1.0,
        "x/max": len(ranks) - 1,
    }


def test_a_denominator_that_one_rank_alone_recorded(ranks: Ranks) -> None:
    assert outcome(ranks, "denominator_of_one_rank") == {
        "n": 2.0,
        "x/avg": 1.5,
        "x/min": 1.0,
        "x/max": 2.0,
    }
    assert set(outcome(ranks, "nothing_on_the_first_rank")) == {"x", "x__count"}
    assert outcome(ranks, "nothing") == {}


def test_a_key_of_two_reduce_types_raises_on_every_rank(ranks: Ranks) -> None:
    others = list(range(1, len(ranks)))
    assert outcome(ranks, "conflicting_types") == (
        f"stat 'x' has different reduce types: AVG on ranks [0]; SUM on ranks {others}"
    )
    assert outcome(ranks, "conflicting_outputs") == (
        "stats 'x' and 'x/avg' (SCALAR) would both be exported as 'x/avg'"
    )
    assert outcome(ranks, "conflict_within_the_last_rank") == (
        f"rank {len(ranks) - 1} of the group: two trackers hold 'rollout/x': a scope of one has "
        "the name of the other"
    )
    assert outcome(ranks, "after_conflicts")["x__count"] == len(ranks)


def test_the_number_of_collectives_is_constant(ranks: Ranks) -> None:
    assert len(outcome(ranks, "many_keys")) == 3 * 1000 + 1
    assert len(outcome(ranks, "many_different_keys")) == 3 * 1000 * len(ranks) + 1
    for rank in ranks:
        counted = {case: result["collectives"] for case, result in rank.items()}
        assert counted["equal_keys"] == counted["many_keys"] == EQUAL
        assert counted["different_keys"] == counted["many_different_keys"] == DIFFERENT
        assert counted["nothing"] == ["all_gather"]
        assert counted["conflicting_types"] == ["all_gather", "all_gather"]
