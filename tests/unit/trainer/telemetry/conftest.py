"""A realistic off-policy run: its facts and one of its reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from drivetrain_api.trainingrun import TrainingRunSpec
from drivetrain_trainer.telemetry.backends.base import BackendContext
from drivetrain_trainer.telemetry.facts import SystemFacts
from drivetrain_trainer.telemetry.record import Record

OFF_POLICY_REPORT: Mapping[str, float] = {
    "Train/mean_reward": 5123.21,
    "Train/mean_episode_length": 1000.0,
    "Train/actor_gradient_norm": 1.22,
    "Train/critic_gradient_norm": 17.3,
    "Train/target_q_max": 120.1,
    "Train/target_q_min": -3.4,
    "Train/replay_ingress_depth": 2.0,
    "Train/replay_ingress_occupancy": 0.3,
    "Train/replay_ingress_high_water": 2.0,
    "Train/replay_ingress_backpressure_wait_ms": 12.2,
    "Train/replay_ingress_dropped_batches": 0.0,
    "Episode/timeout_rate": 1.0,
    "Loss/entropy": -3.2,
    "Loss/actor": -82.12,
    "Loss/critic": 3.2012,
    "Loss/temperature": 0.0123,
    "Loss/learning_rate": 3e-4,
    "Policy/mean_std": 0.432,
    "Policy/temperature": 0.0812,
    "Perf/total_fps": 8142.3,
    "Perf/iteration_time": 0.00786,
    "Perf/learning_time": 0.00571,
    "Perf/learner_collector_wait_ms": 0.93,
    "Perf/learner_inference_ms": 0.61,
    "Perf/learner_inference_forward_ms": 0.55,
    "Perf/learner_collector_release_ms": 0.02,
    "Perf/learner_replay_batch_wait_ms": 0.0,
    "Perf/learner_replay_sample_ms": 0.42,
    "Perf/collector_inference_request_ms": 0.05,
    "Perf/collector_learner_action_wait_ms": 6.1,
    "Perf/collector_env_step_ms": 1.42,
    "Perf/collector_env_step_action_validate_ms": 0.01,
    "Perf/collector_env_step_backend_ms": 1.1,
    "Perf/collector_env_step_update_state_ms": 0.21,
    "Perf/collector_env_step_reset_done_ms": 0.01,
    "Perf/collector_replay_write_ms": 0.31,
    "Perf/collector_metrics_publish_ms": 0.02,
    "Perf/collector_inference_in_flight": 1.0,
    "reward/forward": 0.82,
    "reward/ctrl": -0.12,
    "Episode_Termination/time_out": 1.2,
}


@pytest.fixture
def report() -> dict[str, float]:
    return dict(OFF_POLICY_REPORT)


@pytest.fixture
def facts() -> SystemFacts:
    return SystemFacts(
        run_name="2026-03-09_18-30-00_mujoco",
        algo="sac",
        task="half_cheetah",
        sim="mujoco",
        num_envs=64,
        batch_per_rank=256,
        updates_per_iteration=8,
        buffer_capacity=1_000_000,
        target_env_steps=1_000_000,
    )


@pytest.fixture
def make_record(report: dict[str, float]) -> Callable[..., Record]:
    def make(step: int = 531_200, **values: float) -> Record:
        tags = {name.replace("__", "/"): value for name, value in values.items()}
        return Record(
            env_steps=step,
            iteration=step // 64,
            wall_time=1_700_000_000.0,
            values=tags or report,
            learner_rows_per_second=260_000.0,
            buffer_rows=step,
        )

    return make


@pytest.fixture
def make_context(tmp_path: Path, facts: SystemFacts) -> Callable[..., BackendContext]:
    def make(**training: object) -> BackendContext:
        spec = TrainingRunSpec.model_validate(
            {
                "algo": {"name": "sac"},
                "task": {"name": "half_cheetah"},
                "training": training,
            }
        )
        return BackendContext(
            directory=tmp_path,
            spec=spec,
            facts=facts,
            start_env_steps=facts.start_env_steps,
            attempt=1,
            run_config={"schema_version": 1, "seed": 0},
        )

    return make


@pytest.fixture
def context(make_context: Callable[..., BackendContext]) -> BackendContext:
    return make_context()
