"""A completed runtime manifest, to be changed by tests."""

from __future__ import annotations

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
