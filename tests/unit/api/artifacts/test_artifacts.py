"""Artifacts: strict writers, tolerant readers, exact round trips."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError
from tests.support.runtime_manifests import completed_manifest

from drivetrain_api.algorithms import AlgoName, Precision
from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.outcome import RankOutcome, RunStatus
from drivetrain_api.artifacts.run_config import (
    ActiveTerm,
    ResolvedDevice,
    ResolvedDevices,
    RunConfig,
    RunFacts,
)
from drivetrain_api.artifacts.run_summary import (
    BackendTelemetry,
    RunSeeds,
    RunSummary,
    RunTelemetry,
)
from drivetrain_api.compose import compose, parse_run
from drivetrain_api.tasks import TaskParameters, TaskSpec
from drivetrain_api.training import Simulator

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def summary(**fields: Any) -> RunSummary:
    base: dict[str, Any] = {
        "status": RunStatus.RUNNING,
        "algo": AlgoName.SAC,
        "task": "toy",
        "sim_backend": Simulator.MUJOCO,
        "log_dir": "logs/sac/toy/2026-01-31_12-00-00_mujoco",
        "seeds": RunSeeds(run=0, algo=0, env=1),
        "start_time_utc": START,
    }
    return RunSummary(**base | fields)


class ToyParameters(TaskParameters):
    steps: int = 1
    scale: float = 1.0
    flat: bool = False


TOY = TaskSpec(
    "toy",
    "toy:make",
    observation_dim=3,
    action_dim=1,
    episode_length=10,
    parameters=ToyParameters,
)


def config() -> RunConfig:
    run = parse_run(
        {
            "metadata": {"name": "run"},
            "spec": {
                "algo": {"name": "sac"},
                "task": {"name": "toy", "overrides": {"steps": 3, "scale": 0.5, "flat": True}},
                "training": {"iterations": 5},
            },
        }
    )
    device = ResolvedDevice(configured="auto", resolved="cpu")
    return RunConfig.of(
        compose(run.spec, TOY),
        RunFacts(
            name="run",
            namespace="default",
            uid="u",
            attempt=1,
            created=START,
            world_size=1,
            resolved_devices=ResolvedDevices(learner=device, collector_tensor=device),
            resolved_precision=Precision.FP32,
            observation_dim=3,
            action_dim=1,
            terms=(ActiveTerm(manager="reward", name="run", weight=1.0),),
            versions={"torch": "2.13.0"},
        ),
    )


ARTIFACTS = [
    pytest.param(summary(), id="run_summary"),
    pytest.param(
        summary(
            telemetry=RunTelemetry(
                reports=3,
                nonfinite_values=1,
                overfull_timelines=2,
                backends=(
                    BackendTelemetry(
                        name="wandb",
                        written=2,
                        lost=1,
                        error="write: ConnectionError",
                        details={"run_url": "https://example.org/run"},
                    ),
                ),
            )
        ),
        id="summary_with_telemetry",
    ),
    pytest.param(
        summary(
            status=RunStatus.FAILED,
            final_mean_reward=-1e30,
            error_type="ValueError",
            error="größer",
            runtime_manifest={
                "schema_version": 1,
                "inference_ring_capacity": 1,
                "collector_metrics_interval": 100,
                "shutdown": {"classification": "learner_failure"},
            },
        ),
        id="failed_summary",
    ),
    pytest.param(config(), id="run_config"),
    pytest.param(RankOutcome(rank=1, exit_code=75, status=RunStatus.INTERRUPTED), id="outcome"),
]


@pytest.mark.parametrize(
    ("status", "manifest", "words"),
    [
        (RunStatus.RUNNING, {}, "schema_version"),
        (RunStatus.RUNNING, completed_manifest(schema_version=2), "schema_version"),
        (
            RunStatus.FAILED,
            completed_manifest(shutdown={"iteration": True}, replay_ingress={}),
            "replay_ingress.high_water_occupancy",
        ),
        (
            RunStatus.COMPLETED,
            {k: v for k, v in completed_manifest().items() if k != "collector_backend_device"},
            "collector_backend_device",
        ),
    ],
)
def test_a_summary_with_a_damaged_runtime_manifest_is_neither_written_nor_read(
    status: RunStatus, manifest: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        summary(status=status, runtime_manifest=manifest)
    content = json.loads(summary(status=status).to_json()) | {"runtime_manifest": manifest}
    with pytest.raises(ArtifactError, match=words):
        RunSummary.from_json(json.dumps(content))


def test_ppo_has_backend_diagnostics_in_place_of_a_manifest() -> None:
    told = {"available": True, "backend_type": "mjwarp", "diagnostics": {}}
    ppo = summary(algo=AlgoName.PPO, backend_diagnostics=told)
    assert ppo.backend_diagnostics == told
    with pytest.raises(ValidationError, match="ppo has none"):
        summary(algo=AlgoName.PPO, runtime_manifest=completed_manifest())
    with pytest.raises(ValidationError, match="backend_diagnostics: available"):
        summary(algo=AlgoName.PPO, backend_diagnostics={"backend_type": "mjwarp"})


def test_a_completed_runs_manifest_needs_every_stable_field_and_a_killed_ones_does_not() -> None:
    whole = completed_manifest()
    assert summary(status=RunStatus.COMPLETED, runtime_manifest=whole).runtime_manifest == whole
    begun = {name: whole[name] for name in list(whole)[:3]}
    assert summary(status=RunStatus.INTERRUPTED, runtime_manifest=begun).runtime_manifest == begun


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_reading_gives_back_what_was_written(artifact: Any) -> None:
    text = artifact.to_json()

    assert type(artifact).from_json(text) == artifact
    assert type(artifact).from_json(text).to_json() == text
    assert text.endswith("}\n")


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_a_reader_tolerates_what_a_later_version_added_anywhere(artifact: Any) -> None:
    content = json.loads(artifact.to_json())
    free_form = {"runtime_manifest", "overrides", "versions"}

    def added(node: dict[str, Any]) -> dict[str, Any]:
        return {
            key: value if key in free_form or not isinstance(value, dict) else added(value)
            for key, value in node.items()
        } | {"added_later": 1}

    assert type(artifact).from_json(json.dumps(added(content))) == artifact


def test_a_writer_cannot_add_a_field_by_accident() -> None:
    with pytest.raises(ValidationError, match="mean_rewrd"):
        summary(mean_rewrd=1.0)


def test_keys_are_snake_case_and_times_are_utc() -> None:
    content = json.loads(summary().to_json())

    assert content["start_time_utc"] == "2026-01-31T12:00:00Z"
    assert content["metric_schema_version"] == 1
    assert content["tail_window_iterations"] == 100
    assert content["final_mean_reward"] is None


def test_run_config_is_the_composed_configuration_at_the_top() -> None:
    content = json.loads(config().to_json())

    assert content["algo"]["num_envs"] == 4096
    assert content["training"]["replay_ingress_slot_rows"] == 4096
    assert content["task"]["overrides"] == {"steps": 3, "scale": 0.5, "flat": True}
    assert content["run"]["resolved_devices"]["collector_tensor"] == {
        "configured": "auto",
        "resolved": "cpu",
    }


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not a RunSummary: content"),
        ("[]", "not a RunSummary: content"),
        ("{}", "status: Field required"),
        (summary().to_json()[:-20], "not a RunSummary"),
        (
            summary().to_json().replace('"metric_schema_version": 1', '"metric_schema_version": 2'),
            "metric_schema_version",
        ),
        (
            summary().to_json().replace('"total_env_steps": 0', '"total_env_steps": true'),
            "total_env_steps",
        ),
        (summary().to_json().replace('"running"', '"paused"'), "status"),
    ],
)
def test_what_is_no_summary_is_refused_by_field(text: str, part: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        RunSummary.from_json(text)

    assert part in str(caught.value)


def test_a_figure_that_is_no_number_is_never_written() -> None:
    with pytest.raises(ValidationError, match="final_mean_reward"):
        summary(final_mean_reward=float("nan"))
