"""Manifests and summaries of completed runs, and altered copies that readers must refuse."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.artifacts.mps_evidence import MpsEvidence
from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_summary import (
    BackendTelemetry,
    RunSeeds,
    RunSummary,
    RunTelemetry,
)
from drivetrain_api.training import Simulator


def completed_manifest(**sections: Any) -> dict[str, Any]:
    """Of a short run on a CPU; `sections` are put over it."""
    return {
        "schema_version": 1,
        "inference_ring_capacity": 1,
        "collector_metrics_interval": 1,
        "collector_backend_device": None,
        "inference_flight": {
            "queue_depth": 0,
            "publication_lag": 0,
            "max_in_flight": 1,
            "max_publication_lag": 1,
        },
        "replay_ingress": {
            "ingress_depth": 2,
            "ingress_slot_rows": 4,
            "published_sequence": 30,
            "release_sequence": 30,
            "occupancy": 0,
            "high_water_occupancy": 1,
            "backpressure_waits": 0,
            "backpressure_wait_s": 0.0,
            "early_returns": 0,
            "dropped_batches": 0,
            "closed_returns": 0,
            "stop_returns": 0,
        },
        **sections,
    }


def sharing_evidence(**facts: Any) -> dict[str, Any]:
    """Of a single rank on cuda:0; `facts` as of `MpsEvidence`."""
    evidence = MpsEvidence.model_validate(
        {
            "rank": 0,
            "world_size": 1,
            "learner_device": "cuda:0",
            "collector_device": "cuda:0",
            "learner_gpu_uuid": "GPU-1f2e3d4c",
            "pipe_directory_env": "/run/mps",
            "pipe_directory": "/run/mps",
            "control_pipe": "/run/mps/control",
            "control_pipe_kind": "fifo",
            "server_pid": 12,
            **facts,
        }
    )
    return evidence.model_dump(mode="json")


GRAPH = {"requested": True, "enabled": False, "disable_reason": "no CUDA"}
OWN_BUDGET: dict[str, Any] = {
    "inference_memory_budget": {"ipc_event_count": 6},
    "backend_diagnostics": {
        "available": True,
        "backend_type": "mjwarp",
        "diagnostics": {"cuda_graph": GRAPH},
    },
}
"""Sections that a run on a device has besides."""
_MAY_LACK = (*OWN_BUDGET, "cuda_graph")
_WRONG = ("1", True, -1, 1.5, math.nan, [1], None)


def altered_manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """What was done, and a completed manifest to which it was done: all must be refused."""
    manifest = completed_manifest(**OWN_BUDGET)
    for path in _paths(manifest):
        name = ".".join(path)
        if path[-1] not in _MAY_LACK:
            yield f"{name} removed", changed(manifest, path, remove=True)
        for wrong in _WRONG:
            if not _allowed(path[-1], wrong):
                yield f"{name} is {wrong!r}", changed(manifest, path, wrong)
    yield "version bumped", completed_manifest(schema_version=2)


def _allowed(name: str, value: object) -> bool:
    """A field may be of several types, and a flag or a text another one."""
    return {
        "collector_backend_device": value in (None, "1"),
        "backpressure_wait_s": value == 1.5,
        "available": value is True,
        "backend_type": value == "1",
        "requested": value is True,
        "disable_reason": value == "1",
    }.get(name, False)


def completed_summary(**fields: Any) -> dict[str, Any]:
    """`run_summary.json` of a completed SAC run, every field in it; `fields` are put over it."""
    shutdown = {"classification": "normal_completion", "owner": "learner", "phase": "finish"}
    told = RunSummary(
        status=RunStatus.COMPLETED,
        algo=AlgoName.SAC,
        task="half_cheetah",
        sim_backend=Simulator.MUJOCO,
        log_dir="logs/sac/half_cheetah/run",
        seeds=RunSeeds(run=1, algo=1, env=1),
        start_time_utc=datetime(2026, 3, 9, 18, 30, tzinfo=UTC),
        runtime_manifest=completed_manifest(shutdown=shutdown),
        telemetry=RunTelemetry(
            reports=3,
            nonfinite_values=0,
            backends=(BackendTelemetry(name="tensorboard", written=3, lost=0),),
        ),
    )
    return told.model_dump(mode="json") | fields


def altered_summaries() -> Iterator[tuple[str, dict[str, Any]]]:
    """What was done, and a completed run's summary to which it was done: all must be refused.

    Every field of the model is retyped, and NaN; whatever a summary must have is removed.
    """
    summary = completed_summary()
    must = [name for name, field in RunSummary.model_fields.items() if field.is_required()]
    for name in (*must, "metric_schema_version", "runtime_manifest"):
        yield f"{name} removed", changed(summary, (name,), remove=True)
    for name in RunSummary.model_fields:
        for wrong in ([True], math.nan, {"a": [math.nan]}):
            yield f"{name} is {wrong!r}", changed(summary, (name,), wrong)
    for section in ("seeds", "telemetry"):
        for name in summary[section]:
            path = (section, name)
            for wrong in ([True], math.nan, {"a": [math.nan]}):
                yield f"{section}.{name} is {wrong!r}", changed(summary, path, wrong)
    for name in RunSeeds.model_fields:
        yield f"seeds.{name} removed", changed(summary, ("seeds", name), remove=True)
    for name in ("start_time_utc", "end_time_utc"):
        yield f"{name} is a number", changed(summary, (name,), 1_700_000_000)
    for wrong in (0, 2, "1", 1.0, True, None):
        yield f"metric schema {wrong!r}", completed_summary(metric_schema_version=wrong)


def _paths(mapping: dict[str, Any], below: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in mapping.items():
        yield (*below, key)
        if isinstance(value, dict):
            yield from _paths(value, (*below, key))


def changed(
    document: dict[str, Any], path: tuple[str, ...], value: object = None, *, remove: bool = False
) -> dict[str, Any]:
    """A copy with the field at `path` set or removed."""
    copied = copy.deepcopy(document)
    parent = copied
    for key in path[:-1]:
        parent = parent[key]
    if remove:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return copied
