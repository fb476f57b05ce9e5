"""The runtime manifest that real ranks leave, whichever kind of backend they have."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs
from tiny_run import Attempt, Ranks

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_config import RunConfig
from drivetrain_api.artifacts.runtime_manifest import read_manifest
from drivetrain_api.exit_codes import ExitCode


def fake(kind: str, **overrides: object) -> dict[str, Any]:
    entry_point = f"fake_backends:{kind}"
    return {"name": f"fake_{kind}", "entry_point": entry_point, "overrides": overrides}


def manifest_of(attempt: Attempt) -> dict[str, Any]:
    manifest = attempt.summary.runtime_manifest
    assert manifest is not None
    return manifest


def test_a_completed_run_leaves_a_whole_manifest(ranks: Ranks) -> None:
    attempt = ranks.attempt(
        training={"replay_ingress_slot_rows": 1, "inference_slot_capacity": 2, "log_interval": 7}
    )
    assert attempt.run() is ExitCode.DONE
    manifest = manifest_of(attempt)
    read_manifest(manifest, completed=True)
    assert manifest["inference_ring_capacity"] == 2
    assert manifest["collector_backend_device"] is None
    assert manifest["devices"]["collector_tensor"] == "cpu"
    assert manifest["runtime_limits"]["replay_ingress_slot_rows"] == {
        "configured": 1,
        "default": None,
        "effective": 1,
        "maximum": 2,
    }
    assert manifest["runtime_limits"]["replay_ingress_depth"]["configured"] is None
    ingress = manifest["replay_ingress"]
    # 120 steps of 2 environments are 60 ticks, each a vector of 2 chunks of one row.
    assert ingress["published_sequence"] >= 2 * 59
    assert ingress["release_sequence"] <= ingress["published_sequence"]
    assert ingress["high_water_occupancy"] >= 1
    assert manifest["inference_flight"]["max_in_flight"] <= 2
    assert manifest["shutdown"]["classification"] == "normal_completion"
    assert "inference_memory_budget" not in manifest
    assert "cuda_process_sharing" not in manifest


@pytest.mark.parametrize("kind", ["bridge", "cpu_bridge", "native", "external"])
def test_every_kind_of_backend_trains_on_a_cpu(ranks: Ranks, kind: str) -> None:
    attempt = ranks.attempt(task=fake(kind))
    with capture_logs() as logged:
        assert attempt.run() is ExitCode.DONE
    resolved = {"configured": "auto", "resolved": "cpu"}
    (ready,) = [line for line in logged if line["event"] == "collector ready"]
    assert ready["collector_tensor"] == ready["learner"] == resolved
    config = RunConfig.from_json((attempt.directory / "run_config.json").read_text())
    assert config.run.resolved_devices.collector_tensor.model_dump() == resolved
    assert config.training.collector_tensor_device == "auto"
    assert manifest_of(attempt)["devices"] == {
        "learner": "cpu",
        "collector_tensor": "cpu",
        "inference_ring": "host",
    }


def test_a_backend_that_has_no_device_here_is_refused_by_name(ranks: Ranks) -> None:
    attempt = ranks.attempt(task=fake("cuda_native"), training={"device": "cpu"})
    assert attempt.run() is ExitCode.REFUSED
    assert attempt.outcome.error is not None
    assert attempt.outcome.error.startswith("sim: mujoco has its tensors on cuda alone")


def test_a_run_whose_backend_worker_dies_keeps_what_was_decided_before(ranks: Ranks) -> None:
    attempt = ranks.attempt(task=fake("external", worker_dies_at=20))
    assert attempt.run() is ExitCode.FAILED
    assert attempt.summary.status is RunStatus.FAILED
    manifest = manifest_of(attempt)
    read_manifest(manifest, completed=False)
    assert manifest["runtime_limits"]["collector_metrics_interval"]["effective"] == 1
    assert manifest["tensor_memory_budget"]["replay_storage"] > 0
    assert manifest["shutdown"]["classification"] == "backend_worker_failure"


def test_limits_and_budget_are_there_before_the_collector_has_its_environments(
    ranks: Ranks,
) -> None:
    attempt = ranks.attempt(task=fake("external"), training={"total_env_steps": 10**9})
    attempt.collector.kill()
    assert attempt.run() is ExitCode.FAILED
    manifest = manifest_of(attempt)
    assert set(manifest) >= {"runtime_limits", "tensor_memory_budget", "devices"}
    assert "inference_flight" not in manifest


@pytest.mark.slow
@pytest.mark.timeout(900)  # kernels are compiled on a first run
def test_a_run_on_mjwarp_trains_and_tells_of_its_optimisations(ranks: Ranks) -> None:
    attempt = ranks.attempt(sim="mjwarp", training={"total_env_steps": 200, "logger": "none"})
    with capture_logs() as logged:
        code = attempt.run()
    assert code is ExitCode.DONE, attempt.outcome.error
    assert any(entry["event"].startswith("compiling kernels") for entry in logged)
    assert attempt.directory.name.endswith("_mjwarp")
    manifest = manifest_of(attempt)
    read_manifest(manifest, completed=True)
    assert manifest["collector_backend_device"] is None  # worlds on the CPU have no accelerator
    told = manifest["backend_diagnostics"]
    assert (told["available"], told["backend_type"]) == (True, "mjwarp")
    assert told["diagnostics"]["cuda_graph"]["enabled"] is False
    assert "no CUDA graphs" in told["diagnostics"]["cuda_graph"]["disable_reason"]
