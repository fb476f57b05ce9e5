"""The manifest's writer: valid at every moment, and whole at the end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from drivetrain_api.algorithms import SacConfig
from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_summary import RunSummary
from drivetrain_api.artifacts.runtime_manifest import BackendDiagnostics, read_manifest
from drivetrain_api.budget import MIB, memory_budget, sizes_of
from drivetrain_api.training import TaskConfig, TrainingConfig
from drivetrain_api.trainingrun import TrainingRunSpec
from drivetrain_trainer.evidence.fence import Fence
from drivetrain_trainer.evidence.run_summary import SummaryWriter
from drivetrain_trainer.runtime.devices import ResolvedDevices
from drivetrain_trainer.runtime.inference_flight import InferenceFlight
from drivetrain_trainer.runtime.ingress_words import IngressCounters
from drivetrain_trainer.runtime.settings import RuntimeSettings
from drivetrain_trainer.training.manifest import ManifestWriter

SPEC = TrainingRunSpec(
    algo=SacConfig(num_envs=4, batch_size=32, replay_rows=1000, updates_per_step=2),
    task=TaskConfig(name="toy"),
    training=TrainingConfig(inference_slot_capacity=2, replay_ingress_slot_rows=3),
)
CPU = ResolvedDevices("auto", "cpu", "auto", "cpu")
CPU_CARRIER = ResolvedDevices("auto", "cuda:0", "cpu", "cpu")
GPU = ResolvedDevices("auto", "cuda:0", "auto", "cuda:0")
NATIVE = ResolvedDevices("auto", "cuda:1", "auto", "cuda:1", backend="cuda:1")
FLIGHT = InferenceFlight(
    queue_depth=1,
    action_backlog=0,
    max_action_backlog=1,
    in_flight=1,
    max_in_flight=2,
    publication_lag=0,
    max_publication_lag=1,
)


def ingress(**changes: Any) -> IngressCounters:
    counted: dict[str, Any] = {
        "ingress_depth": 2,
        "ingress_slot_rows": 3,
        "published_sequence": 8,
        "release_sequence": 7,
        "occupancy": 1,
        "high_water_occupancy": 2,
        "backpressure_waits": 1,
        "early_returns": 0,
        "dropped_batches": 0,
        "closed_returns": 0,
        "stop_returns": 0,
        "backpressure_wait_s": 0.5,
    }
    return IngressCounters(**counted | changes)


def begin(writer: ManifestWriter, devices: ResolvedDevices = CPU, *, ring: bool = False) -> None:
    sizes = sizes_of(
        SPEC, observation_dim=5, action_dim=2, on_device=devices is not CPU, ring_on_device=ring
    )
    limits = RuntimeSettings.from_spec(SPEC).limits({"training": {"inference_slot_capacity": 2}})
    writer.begin(limits, memory_budget(sizes), devices)


@pytest.fixture
def summary(tmp_path: Path) -> SummaryWriter:
    first = RunSummary.model_validate(
        {
            "status": "running",
            "algo": "sac",
            "task": "toy",
            "sim_backend": "mujoco",
            "log_dir": "logs",
            "seeds": {"run": 0, "algo": 0, "env": 1},
            "start_time_utc": "2026-01-31T12:00:00Z",
        }
    )
    fence = Fence(tmp_path / "attempts", 1)
    fence.take()
    return SummaryWriter(tmp_path / "run_summary.json", fence, first)


def written(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "run_summary.json").read_text())
    return content


def test_what_is_decided_is_written_before_anything_is_booted(
    tmp_path: Path, summary: SummaryWriter
) -> None:
    begin(ManifestWriter(summary))
    manifest = written(tmp_path)["runtime_manifest"]
    assert manifest["schema_version"] == 1
    assert manifest["inference_ring_capacity"] == 2
    assert manifest["collector_metrics_interval"] == 1
    assert manifest["devices"] == {
        "learner": "cpu",
        "collector_tensor": "cpu",
        "inference_ring": "host",
    }
    assert manifest["runtime_limits"]["inference_slot_capacity"] == {
        "configured": 2,
        "default": 1,
        "effective": 2,
        "maximum": 16,
    }
    # A row is 2 x 5 + 2 + 3 = 15 values; 1000 rows of them, two batches of 2 x 32 rows.
    budget = manifest["tensor_memory_budget"]
    assert budget["replay_storage"] == 1000 * 15 * 4
    assert budget["learner_batches"] == 2 * 64 * 15 * 4
    assert budget["required"] == budget["total"] + budget["shared"]
    assert budget["replay_workspace"] == 32 * MIB
    assert budget["sizes"]["num_envs"] == 4
    absent = ("collector_backend_device", "inference_flight", "replay_ingress", "shutdown")
    assert not set(absent) & set(manifest)
    assert not {"inference_memory_budget", "cuda_process_sharing"} & set(manifest)


def test_a_ring_on_a_device_has_a_budget_of_its_own() -> None:
    writer = ManifestWriter()
    begin(writer, GPU, ring=True)
    assert writer.manifest is not None
    section = writer.manifest.as_mapping()["inference_memory_budget"]
    # 4 environments x (5 + 1 + 2) values; 2 slots x 3 events
    assert isinstance(section, dict)
    assert section["ring_bytes"] == 4 * 8 * 4
    assert section["ipc_event_count"] == 6


@pytest.mark.parametrize(("devices", "ring"), [(CPU_CARRIER, True), (GPU, False)])
def test_a_budget_for_another_ring_is_refused(devices: ResolvedDevices, ring: bool) -> None:
    with pytest.raises(ValueError, match="another one"):
        begin(ManifestWriter(), devices, ring=ring)


def test_the_two_windows_are_kept_apart(tmp_path: Path, summary: SummaryWriter) -> None:
    writer = ManifestWriter(summary)
    begin(writer)
    writer.note(flight=FLIGHT, ingress=ingress(high_water_occupancy=2))
    calmer = replace(FLIGHT, queue_depth=0, max_in_flight=1, max_publication_lag=0)
    writer.note(flight=calmer, ingress=ingress(occupancy=0, high_water_occupancy=2))
    summary.write()
    manifest = written(tmp_path)["runtime_manifest"]
    # since the previous report
    assert manifest["inference_flight"] == {
        "queue_depth": 0,
        "publication_lag": 0,
        "max_in_flight": 1,
        "max_publication_lag": 0,
    }
    # since the start
    assert manifest["replay_ingress"]["high_water_occupancy"] == 2
    assert manifest["replay_ingress"]["backpressure_wait_s"] == 0.5


@pytest.mark.parametrize("devices", [CPU, NATIVE])
def test_a_completed_manifest_is_whole(
    tmp_path: Path, summary: SummaryWriter, devices: ResolvedDevices
) -> None:
    writer = ManifestWriter(summary)
    begin(writer, devices, ring=devices is NATIVE)
    writer.note(
        flight=FLIGHT,
        ingress=ingress(),
        diagnostics=BackendDiagnostics(available=True, backend_type="mujoco", diagnostics={}),
    )
    writer.complete(shutdown={"classification": "normal_completion"})
    summary.finish(RunStatus.COMPLETED)
    found = RunSummary.from_json((tmp_path / "run_summary.json").read_text())
    manifest = read_manifest(found.runtime_manifest, completed=True)
    assert manifest.collector_backend_device == devices.backend
    assert manifest.shutdown == {"classification": "normal_completion"}


def test_an_end_without_counters_is_told_as_far_as_it_is_known(
    tmp_path: Path, summary: SummaryWriter
) -> None:
    writer = ManifestWriter(summary)
    begin(writer)
    with pytest.raises(ArtifactError, match="inference_flight"):
        writer.complete()
    writer.complete(reached_end=False, shutdown={"classification": "collector_failure"})
    summary.finish(RunStatus.FAILED, RuntimeError("lost"))
    manifest = written(tmp_path)["runtime_manifest"]
    assert manifest["collector_backend_device"] is None
    assert "inference_flight" not in manifest


def test_it_is_made_anew_where_something_was_noted_and_at_a_write_alone(
    tmp_path: Path, summary: SummaryWriter
) -> None:
    writer = ManifestWriter(summary)
    begin(writer)
    before = writer.as_mapping()
    assert writer.as_mapping() is before
    writer.note(flight=FLIGHT, ingress=ingress())
    assert "inference_flight" not in written(tmp_path)["runtime_manifest"]
    assert "inference_flight" in writer.as_mapping()
    summary.write()
    assert written(tmp_path)["runtime_manifest"] == writer.as_mapping()


def test_counters_that_cannot_be_are_refused_when_they_are_noted() -> None:
    writer = ManifestWriter()
    begin(writer)
    with pytest.raises(ValidationError, match="is ahead of published_sequence"):
        writer.note(ingress=ingress(release_sequence=10**6))
    assert "replay_ingress" not in writer.as_mapping()


def test_nothing_is_noted_before_it_is_begun() -> None:
    with pytest.raises(RuntimeError, match="not been begun"):
        ManifestWriter().note(flight=FLIGHT)
