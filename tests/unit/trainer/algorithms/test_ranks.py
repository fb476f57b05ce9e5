"""Two real processes over gloo; what each saw is compared here."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from drivetrain_trainer.algorithms.sac.agent import SacAgent
from drivetrain_trainer.runtime.replay_layout import RowLayout

WORLD_SIZE = 2
_TIMEOUT_S = 120


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    worker = Path(__file__).parent / "support" / "ranks.py"
    results = [folder / f"rank{rank}.json" for rank in range(WORLD_SIZE)]
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-W", "error", str(worker), str(rank), str(WORLD_SIZE)),
                *(str(folder / "rendezvous"), str(results[rank])),
            ],
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD_SIZE)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=_TIMEOUT_S)
        assert process.returncode == 0, errors
    return [json.loads(result.read_text()) for result in results]


@pytest.mark.parametrize("variant", ["twin_q", "c51_bf16_clipped"])
def test_parameters_and_normalisers_are_the_same_to_the_bit(
    ranks: list[dict[str, Any]], variant: str
) -> None:
    first, second = (rank["learning"][variant] for rank in ranks)
    assert first["start"] == second["start"]
    assert first["end"] == second["end"] != first["start"]
    assert first["count"] == second["count"] == 25 * 3 * WORLD_SIZE


def test_gradient_synchronisation_is_measured(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        metrics = rank["learning"]["twin_q"]["metrics"]
        # Two critic reductions an iteration, and one of the actor.
        assert metrics["Perf/dp_gradient_sync_calls_per_rank"] == 3
        assert metrics["Perf/dp_gradient_sync_ms_per_rank"] > 0


def test_the_mean_gradient_is_that_of_the_whole_batch(
    ranks: list[dict[str, Any]], make_agent: Callable[..., SacAgent]
) -> None:
    agent = make_agent(
        policy_frequency=1000, gamma=0.97, tau=0.125, weight_decay=1e-3, critic_hidden=(16, 16)
    )
    generator = torch.Generator().manual_seed(5)
    layout = RowLayout(5, 2)
    batch = layout.view(torch.randn(1, 16, layout.width, generator=generator))
    batch.done.fill_(1.0)  # no bootstrap: targets are the rewards, whatever the ranks' noise
    batch.truncated.zero_()
    agent.update(batch, iteration=0, stop_requested=False)
    norm = agent.metrics()["Train/critic_gradient_norm"]
    for rank in ranks:
        theirs = torch.tensor(rank["mean_gradient"]["critic"])
        torch.testing.assert_close(theirs, agent._update.critic.values, atol=1e-6, rtol=1e-4)
        gradient = torch.tensor(rank["mean_gradient"]["gradient"])
        torch.testing.assert_close(gradient, agent._update.critic_reducer.gradient)
        assert rank["mean_gradient"]["norm"] == pytest.approx(norm, rel=1e-4)


def test_one_ranks_nan_is_skipped_counted_and_named_on_both(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["poison"]["skipped"]
        assert rank["poison"]["recovered"]
        assert "2 updates in a row" in rank["poison"]["message"]
        assert "critic loss on rank 1" in rank["poison"]["message"]
    assert "batch reward in 1 rows" in ranks[1]["poison"]["message"]
    assert "batch" not in ranks[0]["poison"]["message"]


def test_a_stop_of_any_rank_reaches_all(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["stopping"]["updates"] == [False, True, True, True, False]
        assert rank["stopping"]["syncs"] == [False, True, True, True, False]
        assert rank["stopping"]["mean"] == pytest.approx([0.5] * 5)
    assert ranks[0]["stopping"]["hash"] == ranks[1]["stopping"]["hash"]


def test_ranks_start_alike_and_explore_apart(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["starting"]["hash"] == ranks[1]["starting"]["hash"]
    assert ranks[0]["starting"]["action"] != ranks[1]["starting"]["action"]


def test_slots_gather_and_the_gradient_adds_up(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        seen = rank["statistics"]
        expected = [[1 / 3 + r, 1e9 + 1 / 7] for r in range(WORLD_SIZE)]
        for got, given in zip(seen["gathered"], expected, strict=True):
            assert all(math.isclose(a, b, rel_tol=2**-47) for a, b in zip(got, given, strict=True))
        assert seen["gradient"] == [3.0] * 3
        assert seen["sentinels"] == [False, True]
        assert not seen["norm_finite"]
        assert seen["timer_calls"] == 1
    assert ranks[0]["statistics"]["gathered"] == ranks[1]["statistics"]["gathered"]
