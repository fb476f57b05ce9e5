"""A rank from its spec to its outcome, with real processes and real physics."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_run import Ranks

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_config import RunConfig
from drivetrain_api.exit_codes import ExitCode
from drivetrain_trainer.evidence.checkpoint import load_part
from drivetrain_trainer.evidence.checkpoint_manifest import LEARNER_PART, rank_part

SHM = Path("/dev/shm")


def parameter_hash(ranks: Ranks, **sections: dict[str, Any]) -> str:
    """Digest of what was learnt, as the last checkpoint of a new run holds it."""
    ranks.uid = f"run-{len(ranks.made)}-{time.monotonic_ns()}"
    ranks.attempts = 0
    attempt = ranks.attempt(**sections)
    assert attempt.run() is ExitCode.DONE
    latest = attempt.checkpoints.latest()
    assert latest is not None
    learnt = io.BytesIO()
    # The agent's alone: what reports smooth depends on when the collector's figures came in.
    torch.save(load_part(latest, LEARNER_PART)["agent"], learnt)
    return hashlib.sha256(learnt.getvalue()).hexdigest()


def test_a_run_ends_complete_and_leaves_what_it_promises(ranks: Ranks) -> None:
    before = set(SHM.iterdir())
    attempt = ranks.attempt(checkpoint={"interval": 40, "keep": 2})
    assert attempt.run() is ExitCode.DONE
    assert attempt.outcome.status is RunStatus.COMPLETED
    assert attempt.outcome.env_steps == 120
    assert attempt.env_steps == 120
    steps = [int(path.name.removeprefix("step_")) for path in attempt.checkpoints.paths()]
    assert steps == [80, 120]
    summary = attempt.summary
    assert (summary.status, summary.total_env_steps) == (RunStatus.COMPLETED, 120)
    assert summary.completed_iterations == 60
    assert summary.final_mean_reward is not None
    config = RunConfig.from_json((attempt.directory / "run_config.json").read_text())
    assert config.run.resolved_devices.learner.resolved == "cpu"
    assert {term.manager for term in config.run.terms} >= {"action", "observation", "reward"}
    assert set(SHM.iterdir()) <= before
    assert attempt.collector.exitcode == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.slow
def test_the_same_seed_gives_the_same_parameters_under_load(ranks: Ranks, precision: str) -> None:
    algo = {"precision": precision}
    quiet = parameter_hash(ranks, algo=algo)
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        loaded = parameter_hash(ranks, algo=algo)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert loaded == quiet
    assert parameter_hash(ranks, algo=algo | {"seed": 1}) != quiet


@pytest.mark.parametrize(
    "training",
    [
        {"replay_ingress_slot_rows": 1},
        {"replay_ingress_depth": 1},
        {"collector_metrics_interval": 7, "log_interval": 3},
        {"sim_threads": 2},
        {"inference_slot_capacity": 2},
    ],
    ids=",".join,
)
@pytest.mark.slow
def test_what_only_moves_data_does_not_change_what_is_learnt(
    ranks: Ranks, training: dict[str, Any]
) -> None:
    assert parameter_hash(ranks, training=training) == parameter_hash(ranks)


@pytest.mark.parametrize(
    "training",
    [{"env_steps_per_sync": 3}, {"inference_slot_capacity": 2}],
    ids=",".join,
)
def test_other_cadences_end_complete(ranks: Ranks, training: dict[str, Any]) -> None:
    attempt = ranks.attempt(training=training)
    assert attempt.run() is ExitCode.DONE
    assert attempt.outcome.env_steps >= 120


def test_a_stop_checkpoints_and_the_next_attempt_goes_on(ranks: Ranks) -> None:
    first = ranks.attempt(training={"total_env_steps": 10**6})
    first.when(lambda: first.env_steps > 30, first.stop.interrupt.set)
    assert first.run() is ExitCode.CHECKPOINTED
    assert first.outcome.status is RunStatus.INTERRUPTED
    latest = first.checkpoints.latest()
    assert latest is not None
    stopped_at = latest.env_steps
    assert stopped_at == first.outcome.env_steps == first.summary.total_env_steps > 30
    assert load_part(latest, rank_part(0))["env_rng"] is not None

    second = ranks.attempt(training={"total_env_steps": stopped_at + 40})
    assert second.run() is ExitCode.DONE
    assert second.directory == first.directory
    assert second.outcome.env_steps == stopped_at + 40
    state = load_part(latest, LEARNER_PART)
    resumed = second.checkpoints.latest()
    assert resumed is not None
    assert load_part(resumed, LEARNER_PART)["agent"]["updates"] > state["agent"]["updates"]
    assert second.summary.start_time_utc == first.summary.start_time_utc


def test_replay_goes_on_where_it_was_stored(ranks: Ranks) -> None:
    first = ranks.attempt(checkpoint={"save_replay": True})
    assert first.run() is ExitCode.DONE
    latest = first.checkpoints.latest()
    assert latest is not None
    assert load_part(latest, rank_part(0))["replay"]["rows"].shape[0] == 120
    second = ranks.attempt(training={"total_env_steps": 122}, checkpoint={"save_replay": True})
    assert second.run() is ExitCode.DONE
    resumed = second.checkpoints.latest()
    assert resumed is not None
    assert load_part(resumed, rank_part(0))["replay"]["rows"].shape[0] == 122
    updates = [load_part(c, LEARNER_PART)["agent"]["updates"] for c in (latest, resumed)]
    assert updates[1] == updates[0] + 2, "it learns at once: no second warm-up"


def test_a_stop_before_the_first_tick_ends_at_once(ranks: Ranks) -> None:
    attempt = ranks.attempt()
    attempt.stop.interrupt.set()
    assert attempt.run() is ExitCode.CHECKPOINTED
    assert attempt.summary.status is RunStatus.INTERRUPTED
    assert attempt.collector.exitcode is not None


def test_a_killed_collector_is_named_within_two_seconds(ranks: Ranks) -> None:
    attempt = ranks.attempt(training={"total_env_steps": 10**6})
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        os.kill(attempt.collector.pid, signal.SIGKILL)

    attempt.when(lambda: attempt.env_steps > 30, kill)
    assert attempt.run() is ExitCode.FAILED
    assert time.monotonic() - killed[0] < 2.0
    assert attempt.outcome.error_type == "CollectorFailedError"
    assert "SIGKILL" in (attempt.outcome.error or "")
    assert attempt.summary.status is RunStatus.FAILED
    assert attempt.summary.error_type == "CollectorFailedError"


def test_the_target_stops_the_run_and_the_best_checkpoint_is_kept(ranks: Ranks) -> None:
    attempt = ranks.attempt(
        training={"total_env_steps": 10**6},
        evaluator={"interval": 40, "episodes": 2, "target": 0.0},
    )
    assert attempt.run() is ExitCode.DONE
    assert attempt.outcome.env_steps == 40
    best = attempt.checkpoints.best()
    assert best is not None
    assert best.manifest.evaluated_return == attempt.summary.best_evaluated_return
    assert best.env_steps == 40


def test_stages_and_evaluations_reach_the_log_through_the_stats_tracker(ranks: Ranks) -> None:
    attempt = ranks.attempt(
        training={"logger": "tensorboard"},
        checkpoint={"interval": 40, "keep": 2},
        evaluator={"interval": 40, "episodes": 2, "eval_before_train": True},
    )
    assert attempt.run() is ExitCode.DONE
    (path,) = attempt.directory.glob("events.out.tfevents.*")
    events = EventAccumulator(str(path))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert {tag for tag in tags if tag.startswith("eval-rollout/")} == {
        "eval-rollout/reward",
        "eval-rollout/reward_sd",
        "eval-rollout/episode_length",
    }
    rewards = events.Scalars("eval-rollout/reward")
    assert [event.step for event in rewards] == [0, 40, 80, 120]
    assert rewards[-1].value == pytest.approx(attempt.summary.evaluated_return)
    for stage in ("checkpoint_save", "evaluation"):
        assert all(event.value > 0 for event in events.Scalars(f"timeperf/{stage}"))
    assert not [tag for tag in tags if tag.endswith("__count")]


def test_evaluation_does_not_change_what_is_learnt(ranks: Ranks) -> None:
    plain = ranks.attempt()
    assert plain.run() is ExitCode.DONE
    ranks.uid, ranks.attempts = "run-2", 0
    evaluated = ranks.attempt(evaluator={"interval": 20, "episodes": 2, "eval_before_train": True})
    assert evaluated.run() is ExitCode.DONE
    states = []
    for attempt in (plain, evaluated):
        latest = attempt.checkpoints.latest()
        assert latest is not None
        states.append(load_part(latest, LEARNER_PART)["agent"]["modules"]["actor"])
    for name, tensor in states[0].items():
        assert tensor.equal(states[1][name]), name


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"task": {"name": "hopper"}}, "inverted_pendulum"),
        ({"algo": {"actor_hidden": (8,)}}, "actor_hidden"),
    ],
    ids=["task", "sizes"],
)
def test_a_checkpoint_of_something_else_is_refused(
    ranks: Ranks, other: dict[str, Any], words: str
) -> None:
    first = ranks.attempt()
    assert first.run() is ExitCode.DONE
    source = str(first.directory)
    ranks.uid, ranks.attempts = "run-2", 0
    second = ranks.attempt(**other, checkpoint={"resume_from": source})
    assert second.run() is ExitCode.REFUSED
    assert words in (second.outcome.error or "")


def test_a_run_starts_from_the_checkpoint_that_it_names(ranks: Ranks) -> None:
    first = ranks.attempt()
    assert first.run() is ExitCode.DONE
    source = str(first.directory)
    ranks.uid, ranks.attempts = "run-2", 0
    second = ranks.attempt(training={"total_env_steps": 140}, checkpoint={"resume_from": source})
    assert second.run() is ExitCode.DONE
    assert second.directory != first.directory
    assert second.outcome.env_steps == 140
    assert second.summary.completed_iterations == 70


def test_a_newer_attempt_fences_an_older_one(ranks: Ranks) -> None:
    older = ranks.attempt(training={"total_env_steps": 10**6})

    def claim() -> None:
        ranks.attempt().given  # noqa: B018 - only its number is wanted
        from drivetrain_trainer.evidence.run_directory import RunDirectory  # noqa: PLC0415

        RunDirectory.claim(ranks.made[-1].given.attempt, ranks.storage)

    older.when(lambda: older.env_steps > 10, claim)
    assert older.run() is ExitCode.FAILED
    assert older.outcome.error_type == "FencedError"
    assert older.checkpoints.paths() == []
