from __future__ import annotations

import pytest

from drivetrain_api.algorithms import SacConfig
from drivetrain_api.training import TaskConfig, TrainingConfig
from drivetrain_api.trainingrun import TrainingRunSpec
from drivetrain_trainer.runtime.settings import KnobLimit, RuntimeSettings


def spec(**training: int) -> TrainingRunSpec:
    return TrainingRunSpec(
        algo=SacConfig(
            num_envs=64, batch_size=32, updates_per_step=3, learning_starts=2, replay_rows=1000
        ),
        task=TaskConfig(name="any"),
        training=TrainingConfig.model_validate(training),
    )


def test_a_spec_gives_exact_values() -> None:
    settings = RuntimeSettings.from_spec(
        spec(
            env_steps_per_sync=2,
            inference_slot_capacity=3,
            collector_metrics_interval=100,
            replay_ingress_depth=4,
            replay_ingress_slot_rows=10,
            sim_threads=2,
        )
    )
    assert settings == RuntimeSettings(
        num_envs=64,
        env_steps_per_sync=2,
        inference_slot_capacity=3,
        collector_metrics_interval=100,
        replay_ingress_depth=4,
        replay_ingress_slot_rows=10,
        replay_rows=1000,
        batch_size=32,
        updates_per_step=3,
        learning_starts=2,
        sim_threads=2,
    )
    assert settings.rows_before_learning == 128


def test_a_slot_holds_a_whole_vector_where_nothing_is_said() -> None:
    assert RuntimeSettings.from_spec(spec()).replay_ingress_slot_rows == 64


def test_a_slot_larger_than_the_vector_is_refused() -> None:
    message = r"training.replay_ingress_slot_rows: 65, allowed 1 to algo.num_envs = 64"
    with pytest.raises(ValueError, match=message):
        RuntimeSettings.from_spec(spec(replay_ingress_slot_rows=65))


def test_the_limits_tell_what_was_written_from_what_holds() -> None:
    written = spec(replay_ingress_depth=4)
    assert RuntimeSettings.from_spec(written).limits(written) == {
        "inference_slot_capacity": KnobLimit(None, 1, 1, 16),
        "collector_metrics_interval": KnobLimit(None, 1, 1, 10_000),
        "replay_ingress_depth": KnobLimit(4, 2, 4, 16),
        "replay_ingress_slot_rows": KnobLimit(None, None, 64, 64),
    }
