"""Statuses by server-side apply, on a real API server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.kubernetes.api import Api, Object
from tests.support.kubernetes.connection import connected

from drivetrain_api.base import API_VERSION, KIND
from drivetrain_api.status import (
    Artifact,
    AttemptRecord,
    Condition,
    ConditionStatus,
    ConditionType,
    Phase,
    Progress,
    RunSummaryDigest,
    SoakDigest,
    SoakVerdict,
    TrainingRunStatus,
)
from drivetrain_operator.cluster.errors import ConflictError, NotFoundError
from drivetrain_operator.cluster.status_writer import StatusWriter, wire
from drivetrain_operator.reconcile.snapshot import RunView

pytestmark = pytest.mark.cluster

AT = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def condition(type_: ConditionType, *, holds: bool = True) -> Condition:
    return Condition(
        type=type_,
        status=ConditionStatus.TRUE if holds else ConditionStatus.FALSE,
        reason="Reason",
        message="why",
        last_transition_time=AT,
        observed_generation=1,
    )


FULL = TrainingRunStatus(
    phase=Phase.RUNNING,
    message="why",
    done="50%",
    conditions=tuple(condition(type_, holds=type_ != "Failed") for type_ in ConditionType),
    attempt=2,
    ranks=4,
    restarts=1,
    disruptions=1,
    attempt_started_at=AT,
    attempt_running_at=AT,
    job_uid="0f0e",
    progressed_at=AT,
    next_attempt_at=AT,
    disruption_seen=True,
    started_at=AT,
    finished_at=AT,
    active_seconds=7,
    progress=Progress(
        iteration=1,
        env_steps=2**40,
        target_env_steps=2**41,
        percent=50,
        steps_per_second="1234.5",
        mean_reward="-1.5e+3",
        evaluated_return="0",
        eta_seconds=9,
        checkpoint_env_steps=1,
        at=AT.replace(microsecond=123456),
    ),
    run_summary=RunSummaryDigest(status="completed", total_env_steps=5, error="x" * 1024),
    soak=SoakDigest(
        verdict=SoakVerdict.FAILED,
        attempt=2,
        failure_classification="resource_leak",
        failure_reason="why",
        duration_seconds=1800,
        samples=360,
        peak_rss_bytes=2**40,
        peak_pss_bytes=2**39,
        peak_gpu_bytes=1,
        rss_growth_bytes=2**33,
        residual_processes=1,
    ),
    artifacts=(Artifact(name="last_checkpoint", uri="runs/walk", sha256="0" * 64, bytes=1),),
    history=(AttemptRecord(attempt=1, reason="OOMKilled", exit_code=137, ended_at=AT),),
    observed_generation=1,
    storage="walk-storage",
)


@pytest.fixture
def run(api: Api, namespace: str) -> RunView:
    return RunView.from_object(
        api.create(
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": "walk"},
                "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}},
            },
            namespace=namespace,
        )
    )


def stored(api: Api, run: RunView) -> Object:
    return api.get(API_VERSION, KIND, "walk", run.metadata.namespace)


def write(kubeconfig: Path, run: RunView, status: TrainingRunStatus) -> RunView:
    """The run as the answer to the write shows it."""

    async def act(cluster: Any) -> RunView:
        return RunView.from_object(await StatusWriter(cluster).write(run.metadata, status))

    return connected(kubeconfig, act)


def test_what_is_written_is_read_back_to_the_last_field(
    api: Api, kubeconfig: Path, run: RunView
) -> None:
    assert [key for key, value in FULL if value is None] == []
    written = write(kubeconfig, run, FULL)
    assert written.status == FULL
    assert stored(api, run)["status"] == wire(FULL)
    again = write(kubeconfig, written, FULL)
    assert again.metadata.resource_version == written.metadata.resource_version


def test_a_stale_version_conflicts_and_nothing_is_written(
    api: Api, kubeconfig: Path, run: RunView
) -> None:
    first = TrainingRunStatus(attempt=1)
    written = write(kubeconfig, run, first)
    for status in (FULL, first):
        with pytest.raises(ConflictError):
            write(kubeconfig, run, status)
    found = stored(api, run)
    assert found["status"] == wire(first)
    assert found["metadata"]["resourceVersion"] == written.metadata.resource_version


def test_a_run_of_the_same_name_is_not_taken_for_it(
    api: Api, kubeconfig: Path, run: RunView
) -> None:
    namespace = run.metadata.namespace
    old = stored(api, run)
    api.delete(API_VERSION, KIND, "walk", namespace)
    with pytest.raises(NotFoundError):
        write(kubeconfig, run, FULL)
    assert api.find(API_VERSION, KIND, "walk", namespace) is None
    fresh = {"apiVersion": API_VERSION, "kind": KIND, "spec": old["spec"]}
    api.create({**fresh, "metadata": {"name": "walk"}}, namespace=namespace)
    with pytest.raises(ConflictError):
        write(kubeconfig, run, FULL)
    assert "status" not in stored(api, run)


def test_what_is_left_out_goes_conditions_included(
    api: Api, kubeconfig: Path, run: RunView
) -> None:
    written = write(kubeconfig, run, FULL)
    less = TrainingRunStatus(attempt=2, conditions=(condition(ConditionType.ACCEPTED),))
    assert write(kubeconfig, written, less).status == less
    assert stored(api, run)["status"] == wire(less)


def test_a_status_that_was_tampered_with_is_set_right(
    api: Api, kubeconfig: Path, run: RunView
) -> None:
    """Fields that another manager owns, which an apply of ours alone would leave."""
    wanted = TrainingRunStatus(attempt=2, conditions=(condition(ConditionType.ACCEPTED),))
    write(kubeconfig, run, wanted)
    forged = condition(ConditionType.COMPLETE).model_dump(mode="json", by_alias=True)
    change = {
        "attempt": 7,
        "finishedAt": "2026-03-01T12:00:00Z",
        "progress": {"iteration": 9},
        "conditions": [forged],
    }
    path = {"subresource": "status", "fieldManager": "kubectl-edit"}
    api.patch(API_VERSION, KIND, "walk", {"status": change}, run.metadata.namespace, **path)
    seen = RunView.from_object(stored(api, run))
    assert seen.status.phase is None
    assert write(kubeconfig, seen, wanted).status == wanted
    later = TrainingRunStatus(attempt=3)
    seen = RunView.from_object(stored(api, run))
    assert write(kubeconfig, seen, later).status == later
    assert stored(api, run)["status"] == wire(later)


def test_only_the_status_is_ours(api: Api, kubeconfig: Path, run: RunView) -> None:
    write(kubeconfig, run, FULL)
    found = stored(api, run)
    assert found["metadata"]["generation"] == 1
    assert "finalizers" not in found["metadata"]
    assert "annotations" not in found["metadata"]
    ours = [f for f in found["metadata"]["managedFields"] if f["manager"] == "drivetrain-operator"]
    assert [(f["operation"], f["subresource"]) for f in ours] == [("Apply", "status")]
    assert set(ours[0]["fieldsV1"]) == {"f:status"}
