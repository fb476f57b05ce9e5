from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from drivetrain_api import labels
from drivetrain_operator.reconcile.fields import Meta, count, decimal, items, mapping, text, time
from drivetrain_operator.reconcile.views import (
    ConfigMapView,
    JobConditionType,
    JobEvent,
    JobView,
    PodPhase,
    PodView,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, 5, "x", [1], {"a": 1}, True])
def test_odd_values_are_read_as_absent(value: Any) -> None:
    parent = {"key": value}
    assert mapping(parent, "key") == (value if isinstance(value, dict) else {})
    assert items(parent, "key") == ()
    assert text(parent, "key") == (value if isinstance(value, str) else "")
    assert count(parent, "key") == (5 if value == 5 else 0)


@pytest.mark.parametrize(
    ("label", "number"),
    [("1", 1), ("007", 7), ("", None), ("-1", None), ("1.0", None), ("٣", None), ("9" * 10, None)],
)
def test_a_label_is_a_plain_decimal_or_nothing(label: str, number: int | None) -> None:
    assert decimal(label) == number


@pytest.mark.parametrize(
    "written",
    ["2026-03-01T12:00:00Z", "2026-03-01T12:00:00.000000Z", "2026-03-01T14:00:00+02:00", NOON],
)
def test_times_come_as_text_or_as_datetimes(written: object) -> None:
    assert time({"at": written}, "at") == NOON


def test_an_empty_object_has_a_view() -> None:
    meta = Meta.from_object({})
    assert (meta.name, meta.attempt, meta.controller_uid, meta.finalizers) == ("", None, "", ())
    assert JobView.from_object({}).conditions == ()
    assert PodView.from_object({}).phase is PodPhase.PENDING
    assert ConfigMapView.from_object({}).digest is None
    assert JobEvent.from_object({}).last_seen is None


def test_the_controller_is_the_owner_that_controls() -> None:
    owners = [
        {"kind": "Other", "name": "a", "uid": "1"},
        {"kind": "Job", "name": "b", "uid": "2", "controller": True},
    ]
    meta = Meta.from_object({"metadata": {"ownerReferences": owners}})
    assert (meta.controller_kind, meta.controller_name, meta.controller_uid) == ("Job", "b", "2")


def test_a_job_is_read_with_the_conditions_that_hold() -> None:
    job = JobView.from_object(
        {
            "metadata": {
                "name": "walk-a3",
                "uid": "j",
                "labels": {labels.ATTEMPT: "3", labels.RUN_UID: "r"},
            },
            "spec": {"suspend": True},
            "status": {
                "startTime": "2026-03-01T12:00:00Z",
                "active": 1,
                "ready": 2,
                "terminating": 3,
                "succeeded": 4,
                "failed": 5,
                "conditions": [
                    {"type": "Suspended", "status": "False"},
                    {"type": "FailureTarget", "status": "True", "reason": "R", "message": "M"},
                    {"type": "SomethingNew", "status": "True"},
                ],
            },
        }
    )
    assert (job.meta.attempt, job.meta.run_uid, job.suspended) == (3, "r", True)
    assert job.started_at == NOON
    assert (job.active, job.ready, job.terminating, job.succeeded, job.failed) == (1, 2, 3, 4, 5)
    assert [c.type for c in job.conditions] == [JobConditionType.FAILURE_TARGET]
    found = job.condition(JobConditionType.FAILED, JobConditionType.FAILURE_TARGET)
    assert found is not None
    assert (found.reason, found.message) == ("R", "M")
    assert job.ending


@pytest.mark.parametrize(
    ("conditions", "suspend", "held", "ending"),
    [
        ([], False, False, False),
        ([], True, True, False),
        (["Suspended"], False, True, False),
        (["SuccessCriteriaMet"], False, False, True),
        (["Complete"], False, False, True),
        (["Failed"], False, False, True),
    ],
)
def test_a_job_is_held_or_ending(
    conditions: list[str], suspend: bool, held: bool, ending: bool
) -> None:
    job = JobView.from_object(
        {
            "spec": {"suspend": suspend},
            "status": {"conditions": [{"type": t, "status": "True"} for t in conditions]},
        }
    )
    assert (job.held, job.ending) == (held, ending)


def test_a_pod_is_read_with_its_containers() -> None:
    pod = PodView.from_object(
        {
            "metadata": {
                "name": "p",
                "annotations": {"batch.kubernetes.io/job-completion-index": "1"},
                "deletionTimestamp": "2026-03-01T12:00:00Z",
                "deletionGracePeriodSeconds": 0,
            },
            "spec": {"nodeName": "n"},
            "status": {
                "phase": "Failed",
                "reason": "Evicted",
                "message": "too much",
                "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "PodScheduled", "status": "True", "message": "old words"},
                    {"type": "DisruptionTarget", "status": "True", "reason": "R", "message": "M"},
                ],
                "initContainerStatuses": [{"name": "trainer", "state": {"waiting": {}}}],
                "containerStatuses": [
                    {
                        "name": "trainer",
                        "state": {
                            "terminated": {
                                "exitCode": 137,
                                "signal": 9,
                                "reason": "OOMKilled",
                                "message": "words",
                                "finishedAt": "2026-03-01T12:00:00Z",
                            }
                        },
                    },
                    {"name": "proxy", "state": {"running": {}}},
                ],
            },
        }
    )
    assert (pod.index, pod.node, pod.phase, pod.live, pod.forced) == (
        1,
        "n",
        PodPhase.FAILED,
        False,
        True,
    )
    assert (pod.reason, pod.message, pod.scheduled) == ("Evicted", "too much", True)
    assert (pod.unscheduled_message, pod.disruption, pod.ready) == ("", "R: M", True)
    trainer = pod.trainer
    assert trainer is not None
    assert trainer.terminated is not None
    assert not trainer.init
    ended = trainer.terminated
    assert (ended.exit_code, ended.signal, ended.reason) == (137, 9, "OOMKilled")
    assert (ended.message, ended.finished_at) == ("words", NOON)
    assert [c.trainer for c in pod.containers] == [False, True, False]


@pytest.mark.parametrize(
    ("phase", "view", "live"),
    [
        ("", PodPhase.PENDING, True),
        ("Pending", PodPhase.PENDING, True),
        ("Running", PodPhase.RUNNING, True),
        ("Succeeded", PodPhase.SUCCEEDED, False),
        ("Failed", PodPhase.FAILED, False),
        ("Unknown", PodPhase.UNKNOWN, True),
        ("Dreaming", PodPhase.UNKNOWN, True),
    ],
)
def test_a_phase_that_is_not_known_may_be_live(phase: str, view: PodPhase, live: bool) -> None:
    pod = PodView.from_object({"status": {"phase": phase}})
    assert (pod.phase, pod.live) == (view, live)


def test_a_disruption_that_no_longer_holds_is_none() -> None:
    condition = {"type": "DisruptionTarget", "status": "False"}
    assert PodView.from_object({"status": {"conditions": [condition]}}).disruption is None


def test_an_event_is_as_old_as_its_last_sighting() -> None:
    event = {
        "series": {"lastObservedTime": "2026-03-01T12:00:00Z"},
        "lastTimestamp": "2026-03-01T11:00:00Z",
        "eventTime": "2026-03-01T10:00:00Z",
    }
    assert JobEvent.from_object(event).last_seen == NOON
    del event["series"]
    assert JobEvent.from_object(event).last_seen == datetime(2026, 3, 1, 11, tzinfo=UTC)
