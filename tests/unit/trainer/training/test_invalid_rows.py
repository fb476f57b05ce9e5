"""Rows that cannot be trained on, in real runs: named, kept out, counted, and held to a bound."""

from __future__ import annotations

import json
from typing import Any

from tiny_run import Attempt, Ranks

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.runtime_manifest import read_manifest
from drivetrain_api.artifacts.shutdown import Classification, Owner
from drivetrain_api.exit_codes import ExitCode
from drivetrain_trainer.evidence.checkpoint import load_part
from drivetrain_trainer.evidence.checkpoint_manifest import rank_part
from drivetrain_trainer.runtime.replay_layout import RowLayout

LAYOUT = RowLayout(observation_dim=2, action_dim=1)
TICKS = 30
ENVS = 4


def run_of(ranks: Ranks, *, share: float = 0.01, **poison: Any) -> Attempt:
    return ranks.attempt(
        task={"name": "poisoned", "entry_point": "poisoned_task:task", "overrides": poison},
        algo={"num_envs": ENVS, "learning_starts": 4},
        training={
            "total_env_steps": TICKS * ENVS,
            "logger": "jsonl",
            "max_invalid_row_share": share,
        },
        checkpoint={"save_replay": True},
    )


def rewards_in_replay(attempt: Attempt) -> list[float]:
    latest = attempt.checkpoints.latest()
    assert latest is not None
    rewards: list[float] = LAYOUT.view(
        load_part(latest, rank_part(0))["replay"]["rows"]
    ).reward.tolist()
    return rewards


def reported(attempt: Attempt, tag: str) -> list[float]:
    """Values of a tag in the run's metric log, in their order."""
    (log,) = attempt.directory.glob("**/*.jsonl")
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [record["values"][tag] for record in records if tag in record.get("values", {})]


def soundness_of(attempt: Attempt, *, completed: bool) -> dict[str, Any]:
    manifest = attempt.summary.runtime_manifest
    assert manifest is not None
    read_manifest(manifest, completed=completed)
    found: Any = manifest["soundness"]
    assert isinstance(found, dict)
    return found


def test_a_single_nan_of_a_reward_term_is_named_and_never_reaches_the_replay(ranks: Ranks) -> None:
    attempt = run_of(ranks, poisoned_from=12, poisoned_env=2)
    assert attempt.run() is ExitCode.DONE
    expected = [
        tick + 0.25 * env for tick in range(TICKS) for env in range(ENVS) if (tick, env) != (12, 2)
    ]
    assert rewards_in_replay(attempt) == expected
    assert attempt.summary.invalid_rows == 1
    assert soundness_of(attempt, completed=True) == {
        "invalid_rows": 1,
        "by_reason": {"nonfinite": 1},
        "first": "tick 12, env 2: reward term 'tick' is nan",
    }
    counted = reported(attempt, "Train/invalid_rows")
    assert (counted[0], counted[-1]) == (0.0, 1.0)


def test_more_than_the_bound_ends_the_run_for_good(ranks: Ranks) -> None:
    # 2 of the latest 10,000 rows may be left out.
    attempt = run_of(ranks, share=0.0002, poisoned_from=12, poisoned_ticks=5, poisoned_env=3)
    assert attempt.run() is ExitCode.BROKEN
    outcome = attempt.outcome
    assert outcome.status is RunStatus.FAILED
    assert outcome.exit_code == 3
    words = (
        "InvalidRowsError in tick 14: 3 of the latest 10000 rows could not be trained on, and"
        " training.max_invalid_row_share 0.0002 allows 2;"
        " the first: tick 12, env 3: reward term 'tick' is nan;"
        " the newest: tick 14, env 3: reward term 'tick' is nan"
    )
    assert words in (outcome.error or "")
    shutdown = outcome.shutdown
    assert shutdown is not None
    assert (shutdown.classification, shutdown.owner) == (
        Classification.COLLECTOR_FAILURE,
        Owner.COLLECTOR,
    )
    summary = attempt.summary
    assert (summary.status, summary.invalid_rows) == (RunStatus.FAILED, 3)
    assert soundness_of(attempt, completed=False)["by_reason"] == {"nonfinite": 3}


def test_a_model_that_blows_up_leaves_nothing_to_learn_from(ranks: Ranks) -> None:
    attempt = run_of(ranks, gear=1e13)
    assert attempt.run() is ExitCode.BROKEN
    words = "not one of 20 rows could be trained on; the first: tick 0, env 0: simulator warning"
    assert f"{words} BADQACC" in (attempt.outcome.error or "")
    assert soundness_of(attempt, completed=False)["by_reason"]["BADQACC"] >= 20
