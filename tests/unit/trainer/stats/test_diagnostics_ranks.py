"""Diagnostics over two real ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rank_group import run_ranks

SCRIPT = Path(__file__).with_name("diagnostics_rank.py")

Ranks = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return run_ranks(SCRIPT, tmp_path_factory.mktemp("group"))


def test_every_rank_gets_the_same_figures(ranks: Ranks) -> None:
    for case in ranks[0]:
        if case != "moe_balance":
            assert ranks[0][case] == ranks[1][case], case


def test_log_densities_weigh_by_position(ranks: Ranks) -> None:
    found = ranks[0]["log_probs"]
    prefix = "ppo_actor/train_infer/"
    assert found[prefix + "logp_diff/avg"] == 0.5  # (2 + 3 * 0) / 4, not the mean of 2 and 0
    assert found[prefix + "logp_diff/max"] == 2.0
    assert found[prefix + "ratio_outside_5"] == 0.25  # log 5 = 1.61
    assert found[prefix + "ratio_outside_10"] == 0.0  # log 10 = 2.30
    assert found[prefix + "nonfinite_logp_fraction"] == 0.0
    assert found[prefix + "n_valid_tokens"] == 4.0


def test_a_nan_of_one_rank_makes_the_tails_of_all_nan(ranks: Ranks) -> None:
    found = ranks[0]["broken_log_probs"]
    prefix = "ppo_actor/train_infer/"
    assert found[prefix + "ratio_outside_1.5"] == "nan"
    assert found[prefix + "logp_diff/max"] == "nan"
    assert found[prefix + "nonfinite_logp_fraction"] == 0.25


def test_staleness_has_global_extremes_and_means_by_position(ranks: Ranks) -> None:
    found = ranks[0]["staleness"]
    prefix = "ppo_actor/update/version_stats/"
    for family in ("theta", "proximal"):
        assert found[f"{prefix}sample_staleness_{family}_avg"] == (1 + 1 + 1 + 5 - 2) / 5
        assert found[f"{prefix}sample_staleness_{family}_min"] == -2.0
        assert found[f"{prefix}sample_staleness_{family}_max"] == 5.0
    assert found[prefix + "stale_token_fraction"] == 0.8
    assert found[prefix + "future_token_fraction"] == 0.2
    assert found[prefix + "n_valid_generated_tokens"] == 5.0


def test_throughput_sums_tokens_over_the_longest_time(ranks: Ranks) -> None:
    found = ranks[0]["throughput"]
    assert found["train_perf/tokens"] == 40.0
    assert found["train_perf/seconds"] == 4.0
    assert found["train_perf/tokens_per_second"] == 10.0
    # 10^2 on rank 0, 10^2 + 20^2 on rank 1.
    assert found["train_perf/estimated_flops"] == 600.0
    assert found["train_perf/estimated_flops_per_second"] == 150.0
    assert found["train_perf/cumulative_tokens_per_second"] == 10.0


def test_a_rank_that_repeats_anothers_data_adds_time_alone(ranks: Ranks) -> None:
    found = ranks[0]["throughput_of_a_replica"]
    assert (found["train_perf/tokens"], found["train_perf/seconds"]) == (10.0, 4.0)
    assert found["train_perf/estimated_flops"] == 100.0


def test_one_rank_without_an_estimator_leaves_flops_out(ranks: Ranks) -> None:
    found = ranks[0]["throughput_unregistered_on_one"]
    assert not [key for key in found if "flops" in key]
    assert found["train_perf/tokens"] == 40.0


def test_expert_counts_add_up_over_ranks_first(ranks: Ranks) -> None:
    own = [rank["moe_balance"]["own"][0] for rank in ranks]
    together = [a + b for a, b in zip(*own, strict=True)]
    for rank in ranks:
        assert rank["moe_balance"]["counts"] == [together]
        assert rank["moe_balance"]["scalars"] == {
            "moe_balance/layer_0/max_over_ideal": max(together) * 4 / 32
        }


def test_pipeline_stages_hold_different_layers(ranks: Ranks) -> None:
    assert ranks[0]["moe_stages"]["rows"] == [
        [0, 0, 3, 75.0],
        [0, 1, 1, 25.0],
        [1, 0, 0, 0.0],
        [1, 1, 0, 0.0],
        [1, 2, 0, 0.0],
    ]


def test_ranks_that_contradict_each_other_all_hear_it(ranks: Ranks) -> None:
    message = "layer 4 has 2 experts on one rank, 3 on another"
    assert ranks[0]["moe_contradiction"]["error"] == message
