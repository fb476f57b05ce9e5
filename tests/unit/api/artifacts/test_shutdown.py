"""The shutdown report: exact round trip, and stories that contradict themselves refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.runtime_manifest import ReplayIngressEvidence, RuntimeManifest
from drivetrain_api.artifacts.shutdown import (
    Classification,
    CleanupSnapshot,
    CollectorSnapshot,
    InferenceRingSnapshot,
    LearnerCoordination,
    LifePhase,
    Owner,
    ShutdownException,
    ShutdownReport,
)


def report(**fields: Any) -> ShutdownReport:
    base: dict[str, Any] = {
        "classification": Classification.COLLECTOR_FAILURE,
        "owner": Owner.COLLECTOR,
        "phase": LifePhase.COLLECTING,
        "iteration": 3,
        "coordination_tick": 7,
        "inference_epoch": 3,
        "exception": ShutdownException(type="CollectorFailedError", message="killed by SIGKILL"),
        "learner_coordination": LearnerCoordination(
            rank=0, world_size=2, env_steps=56, replay_rows=28
        ),
        "inference_ring": InferenceRingSnapshot(
            capacity=1,
            groups=1,
            requested_ticks=(7,),
            responded_ticks=(6,),
            response_epochs=(3,),
            responses=7,
            stop_requested=False,
        ),
        "replay_ingress": ReplayIngressEvidence(
            ingress_depth=2,
            ingress_slot_rows=4,
            published_sequence=7,
            release_sequence=7,
            occupancy=0,
            high_water_occupancy=1,
            backpressure_waits=0,
            backpressure_wait_s=0.0,
            early_returns=0,
            dropped_batches=0,
            closed_returns=0,
            stop_returns=0,
        ),
        "collector": CollectorSnapshot(pid=41, alive=False, exitcode=-9, signal=9),
        "cleanup": CleanupSnapshot(errors=("close telemetry: OSError: disk full",)),
    }
    return ShutdownReport(**base | fields)


EARLY: dict[str, Any] = {
    "coordination_tick": None,
    "inference_epoch": None,
    "inference_ring": None,
    "replay_ingress": None,
    "collector": None,
}


@pytest.mark.parametrize("fields", [{}, EARLY], ids=["late", "early"])
def test_reading_gives_back_what_was_written(fields: dict[str, Any]) -> None:
    written = report(**fields)

    assert ShutdownReport.from_json(written.to_json()) == written


def test_the_manifest_takes_it_as_its_opaque_mapping() -> None:
    mapping = report().model_dump(mode="json")
    manifest = RuntimeManifest(
        schema_version=1, inference_ring_capacity=1, collector_metrics_interval=1, shutdown=mapping
    )

    assert ShutdownReport.model_validate_json(json.dumps(manifest.as_mapping()["shutdown"])) == (
        report()
    )


@pytest.mark.parametrize("field", [*ShutdownReport.model_fields])
def test_every_field_is_required(field: str) -> None:
    content = json.loads(report().to_json())
    del content[field]

    with pytest.raises(ArtifactError, match=field):
        ShutdownReport.from_json(json.dumps(content))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"classification": "crashed"}, "classification"),
        ({"owner": ""}, "owner"),
        ({"phase": None}, "phase"),
        ({"iteration": True}, "iteration"),
        ({"coordination_tick": -1}, "coordination_tick"),
        ({"inference_epoch": 1.0}, "inference_epoch"),
        ({"added": 1}, "added"),
        ({"classification": Classification.NORMAL_COMPLETION}, "has no exception"),
    ],
)
def test_what_is_no_report_is_refused_by_field(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        report(**fields)


@pytest.mark.parametrize(
    ("alive", "exitcode", "signal"),
    [(True, 0, None), (False, None, None), (False, -9, None), (False, 1, 9), (False, -9, 15)],
)
def test_a_collector_that_contradicts_itself_is_refused(
    alive: bool, exitcode: int | None, signal: int | None
) -> None:
    with pytest.raises(ValidationError, match="contradicts exitcode"):
        CollectorSnapshot(pid=1, alive=alive, exitcode=exitcode, signal=signal)
