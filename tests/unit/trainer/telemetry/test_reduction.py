from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from rank_group import run_ranks

from drivetrain_api.metrics import Reduction
from drivetrain_trainer.telemetry.reduction import RankReducer

SCRIPT = Path(__file__).with_name("two_ranks.py")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_ranks(SCRIPT, tmp_path_factory.mktemp("group"))


def test_both_ranks_get_the_same_reduced_report(ranks: list[dict[str, Any]]) -> None:
    first, second = (repr(rank["reduced"]) for rank in ranks)
    assert first == second


def test_values_reduce_by_the_schema(ranks: list[dict[str, Any]]) -> None:
    reduced = ranks[0]["reduced"]
    assert reduced[0] == {"Loss/actor": 2.0}
    assert reduced[1] == {"Perf/total_fps": 30.0}


def test_a_value_that_a_rank_lacks_is_masked_there(ranks: list[dict[str, Any]]) -> None:
    reduced = ranks[0]["reduced"]
    assert reduced[2] == {"Loss/actor": 1.0, "Loss/critic": 5.0}
    assert reduced[3] == {"Perf/total_fps": 10.0}


def test_a_nan_on_one_rank_is_not_averaged_away(ranks: list[dict[str, Any]]) -> None:
    assert math.isnan(ranks[0]["reduced"][4]["Loss/actor"])


def test_members_of_a_family_are_agreed_on_when_they_first_appear(
    ranks: list[dict[str, Any]],
) -> None:
    reduced = ranks[0]["reduced"]
    assert reduced[5] == {"reward/a": 3.0, "reward/b": 1.0, "reward/c": 8.0}
    assert reduced[6] == reduced[5]
    assert reduced[7] == {"reward/é": 1.0}


def test_a_report_of_known_tags_is_one_all_reduce(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["collectives"] == [1, 1, 1, 1, 1, 3, 1, 3, 1, 1]


def test_rows_per_second_are_summed_over_ranks(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["rows"][8] == pytest.approx(1000.0 + 500.0)
    assert ranks[1]["rows"] == ranks[0]["rows"] == ranks[0]["kept"]


def test_one_ranks_overlapping_phases_are_not_averaged_away(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["reduced"][9]["Perf/learner_inference_ms"] == 55.5, "below the mean Iter Wall"
    assert [rank["overfull"] for rank in ranks] == [1, 1]


def test_ranks_out_of_step_are_found_out(ranks: list[dict[str, Any]]) -> None:
    assert [rank["divergence"] for rank in ranks] == [
        "rank 0 reports iteration 100, but the iterations of 2 ranks add up to 201",
        "rank 1 reports iteration 101, but the iterations of 2 ranks add up to 201",
    ]


def test_one_rank_needs_no_group() -> None:
    reducer = RankReducer(lambda _: Reduction.MEAN, rank=0, world_size=1, group=None)
    assert reducer.reduce({"Loss/actor": 1.0}, 3) == {"Loss/actor": 1.0}
