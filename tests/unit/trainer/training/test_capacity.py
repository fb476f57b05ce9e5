"""Groups of environments: what is learnt does not depend on how many there are."""

from __future__ import annotations

import hashlib
import io
import time
from typing import Any

import pytest
import torch
from tiny_run import Ranks

from drivetrain_api.exit_codes import ExitCode
from drivetrain_trainer.evidence.checkpoint import load_part
from drivetrain_trainer.evidence.checkpoint_manifest import LEARNER_PART, rank_part

# Seven environments in 1, 2, 3 or 4 groups; episodes that end, so that all of them draw.
RUN: dict[str, dict[str, Any]] = {
    "algo": {"num_envs": 7, "actor_hidden": (48, 32), "learning_starts": 6},
    "task": {"name": "hopper"},
    "training": {"total_env_steps": 7 * 60},
}


def learnt(ranks: Ranks, **training: Any) -> str:
    """Digest of everything that a run's last checkpoint holds but its reports."""
    ranks.uid = f"run-{len(ranks.made)}-{time.monotonic_ns()}"
    ranks.attempts = 0
    attempt = ranks.attempt(**{**RUN, "training": {**RUN["training"], **training}})
    assert attempt.run() is ExitCode.DONE
    return digest(attempt)


def digest(attempt: Any) -> str:
    latest = attempt.checkpoints.latest()
    assert latest is not None
    own = load_part(latest, rank_part(0))
    content = (load_part(latest, LEARNER_PART)["agent"], own["env_rng"], own["replay"])
    stored = io.BytesIO()
    torch.save(content, stored)
    return hashlib.sha256(stored.getvalue()).hexdigest()


@pytest.fixture(autouse=True)
def _with_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in the replay, and their order, are part of what is compared."""
    monkeypatch.setitem(RUN, "checkpoint", {"save_replay": True})


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_parameters_rows_and_random_numbers_are_the_same_to_the_bit(
    ranks: Ranks, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RUN, "algo", RUN["algo"] | {"precision": precision})
    one = learnt(ranks)
    for capacity in (2, 3, 4):
        assert learnt(ranks, inference_slot_capacity=capacity) == one, f"capacity {capacity}"


@pytest.mark.slow
def test_the_same_with_little_room_in_the_ingress_and_several_ticks_a_call(ranks: Ranks) -> None:
    knobs = {"replay_ingress_slot_rows": 3, "replay_ingress_depth": 1, "env_steps_per_sync": 2}
    one = learnt(ranks, **knobs)
    assert learnt(ranks, inference_slot_capacity=3, **knobs) == one


@pytest.mark.slow
def test_a_run_may_be_resumed_with_another_number_of_groups(ranks: Ranks) -> None:
    def interrupted(second: int) -> str:
        ranks.uid = f"run-{len(ranks.made)}-{time.monotonic_ns()}"
        ranks.attempts = 0
        for total, capacity in ((7 * 30, 2), (7 * 60, second)):
            training = {"total_env_steps": total, "inference_slot_capacity": capacity}
            attempt = ranks.attempt(**{**RUN, "training": training})
            assert attempt.run() is ExitCode.DONE
        return digest(attempt)

    assert interrupted(1) == interrupted(2) == interrupted(4)
