from __future__ import annotations

import pytest

from drivetrain_api.algorithms import SacConfig
from drivetrain_api.errors import SpecError
from drivetrain_api.explain import show
from drivetrain_api.training import TaskConfig, TrainingConfig
from drivetrain_api.trainingrun import TrainingRunSpec
from drivetrain_trainer.runtime.settings import RuntimeSettings


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


VALID = {
    "num_envs": 64,
    "env_steps_per_sync": 2,
    "inference_slot_capacity": 3,
    "collector_metrics_interval": 100,
    "replay_ingress_depth": 4,
    "replay_ingress_slot_rows": 10,
    "replay_rows": 1000,
    "batch_size": 32,
    "updates_per_step": 3,
    "learning_starts": 2,
    "sim_threads": 2,
}
ALGO = ("num_envs", "replay_rows", "batch_size", "updates_per_step", "learning_starts")


def path(name: str) -> str:
    return f"{'algo' if name in ALGO else 'training'}.{name}"


@pytest.mark.parametrize("value", [True, False, "3", 3.0, 2.5, -1, None, float("nan")], ids=repr)
@pytest.mark.parametrize("name", VALID)
def test_what_is_no_exact_integer_of_the_range_is_refused_by_path(name: str, value: object) -> None:
    with pytest.raises(SpecError) as refused:
        RuntimeSettings(**{**VALID, name: value})  # type: ignore[arg-type]
    found = {violation.path: violation.message for violation in refused.value.violations}
    assert set(found) == {path(name)}
    assert "must be an integer" in found[path(name)]
    assert f"got {show(value)}" in found[path(name)]


@pytest.mark.parametrize("name", [name for name in VALID if name != "learning_starts"])
def test_zero_is_refused_but_for_the_warm_up(name: str) -> None:
    with pytest.raises(SpecError, match="got 0"):
        RuntimeSettings(**{**VALID, name: 0})
    RuntimeSettings(**{**VALID, "learning_starts": 0})


@pytest.mark.parametrize(
    ("name", "maximum"),
    [
        ("env_steps_per_sync", 1024),
        ("inference_slot_capacity", 16),
        ("collector_metrics_interval", 10_000),
        ("replay_ingress_depth", 16),
        ("replay_ingress_slot_rows", 64),
    ],
)
def test_each_knob_has_its_maximum(name: str, maximum: int) -> None:
    assert getattr(RuntimeSettings(**{**VALID, name: maximum}), name) == maximum
    words = f"training.{name}: must be an integer from 1 to {maximum}; got {maximum + 1}"
    with pytest.raises(SpecError, match=words):
        RuntimeSettings(**{**VALID, name: maximum + 1})


def test_every_refusal_is_told_at_once() -> None:
    with pytest.raises(SpecError) as refused:
        RuntimeSettings(**{**VALID, "batch_size": 0, "replay_ingress_depth": 17})
    assert [violation.path for violation in refused.value.violations] == [
        "algo.batch_size",
        "training.replay_ingress_depth",
    ]


def test_rows_of_a_synchronisation_are_those_of_all_its_updates() -> None:
    assert RuntimeSettings(**VALID).learner_rows_per_sync == 96


def test_the_limits_tell_what_was_chosen_from_what_holds() -> None:
    settings = RuntimeSettings.from_spec(spec(replay_ingress_depth=4))
    limits = settings.limits({"training": {"replay_ingress_depth": 4, "logger": "none"}})
    assert {name: limit.model_dump() for name, limit in limits.items()} == {
        name: dict(zip(("configured", "default", "effective", "maximum"), row, strict=True))
        for name, row in {
            "env_steps_per_sync": (None, 1, 1, 1024),
            "inference_slot_capacity": (None, 1, 1, 16),
            "collector_metrics_interval": (None, 1, 1, 10_000),
            "replay_ingress_depth": (4, 2, 4, 16),
            "replay_ingress_slot_rows": (None, None, 64, 64),
        }.items()
    }
