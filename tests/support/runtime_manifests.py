"""A completed runtime manifest, to be changed by tests."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from drivetrain_api.artifacts.mps_evidence import MpsEvidence


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


def altered_manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """What was done, and a completed manifest to which it was done: all must be refused."""
    for path in _paths(completed_manifest()):
        name = ".".join(path)
        yield f"{name} removed", _changed(path, None, remove=True)
        for wrong in ("1", True, -1, 1.5, float("nan"), [1], None):
            allowed = (path[-1] == "collector_backend_device" and wrong in (None, "1")) or (
                path[-1] == "backpressure_wait_s" and wrong == 1.5
            )
            if not allowed:
                yield f"{name} is {wrong!r}", _changed(path, wrong)
    yield "version bumped", completed_manifest(schema_version=2)


def _paths(mapping: dict[str, Any], below: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in mapping.items():
        yield (*below, key)
        if isinstance(value, dict):
            yield from _paths(value, (*below, key))


def _changed(path: tuple[str, ...], value: object, *, remove: bool = False) -> dict[str, Any]:
    manifest = copy.deepcopy(completed_manifest())
    parent = manifest
    for key in path[:-1]:
        parent = parent[key]
    if remove:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return manifest
