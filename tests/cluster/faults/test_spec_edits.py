"""The spec is edited while the run is under way: refused with the reason, or acted on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.faults.lab import Lab
from tests.support.kubernetes.api import RefusedError, wait_for
from tests.support.kubernetes.simulated_kubelet import Plan, fails_once, runs_on

IMMUTABLE: dict[str, Any] = {
    "algo": {"batchSize": 512},
    "task": {"name": "ant"},
    "sim": "mjwarp",
    "seed": 7,
    "topology": {"nodes": 2},
    "accelerator": {"gpusPerNode": 2},
    "storage": {"size": "2Gi"},
    "experiment": {"suite": "seeds", "runIdx": 0, "invocation": "first"},
    "checkpoint.resumeFrom": {"resumeFrom": "elsewhere"},
}


def never_starts(_: str, __: int) -> Plan:
    return Plan(starts=False)


def reason_of(status: dict[str, Any], type_: str) -> str:
    return next((c["reason"] for c in status["conditions"] if c["type"] == type_), "")


def test_what_an_attempt_rests_on_cannot_be_edited(lab: Lab) -> None:
    name = "fixed"
    lab.create_with(runs_on, name, storage={"size": "1Gi"})
    before = lab.phase(name, "Running")
    for path, value in IMMUTABLE.items():
        with pytest.raises(RefusedError) as refused:
            lab.change(name, **{path.partition(".")[0]: value})
        assert refused.value.answer.code == 422
        assert f"{path} is immutable: create another TrainingRun" in refused.value.answer.message
    after = lab.status(name)
    assert (after["attempt"], after["phase"]) == (before["attempt"], "Running")
    lab.witness.check(name)


def test_suspend_may_be_set_and_taken_back_at_once(lab: Lab) -> None:
    name = "to-and-fro"
    lab.create_with(runs_on, name)
    lab.phase(name, "Running")
    for suspended in (True, False, True, False, True):
        lab.change(name, suspend=suspended)
    lab.phase(name, "Suspended")
    lab.change(name, suspend=False)
    status = lab.phase(name, "Running")
    assert status["restarts"] == 0
    assert {record["reason"] for record in status["history"]} == {"SuspendedBySpec"}
    lab.witness.check(name)


def test_a_shorter_active_deadline_ends_the_run(lab: Lab) -> None:
    name = "too-long"
    lab.create_with(runs_on, name)
    lab.phase(name, "Running")
    lab.change(name, deadlines={"activeSeconds": 1})
    status = lab.phase(name, "Failed")
    assert reason_of(status, "Failed") == "ActiveDeadlineExceeded"
    assert status["progress"]["envSteps"] == 100, "what it reached is told"
    lab.until(name, lambda _: "Pod" not in {k for k, _ in lab.children(name)}, "end of the pod")
    assert lab.witness.jobs_made(name, 2) == 0


def test_a_pending_deadline_that_is_set_later_ends_the_run(lab: Lab) -> None:
    name = "too-late"
    lab.create_with(never_starts, name)
    lab.phase(name, "Pending", 1)
    lab.change(name, deadlines={"pendingSeconds": 1})
    status = lab.phase(name, "Failed")
    assert reason_of(status, "Failed") == "PendingDeadlineExceeded"
    assert "after 1 s" in status["message"]


def test_fewer_restarts_are_allowed_from_then_on(lab: Lab) -> None:
    name = "no-more"

    def fails_when_told(_: str, attempt: int) -> Plan:
        return Plan(code=1) if attempt == 1 or told else Plan(code=None)

    told: list[bool] = []
    lab.create_with(fails_when_told, name)
    lab.phase(name, "Running", 2)
    lab.change(name, restart={"maxRestarts": 1})
    lab.until(name, lambda s: s["observedGeneration"] == 2, "status of the new spec")
    told.append(True)
    status = lab.phase(name, "Failed")
    assert reason_of(status, "Failed") == "RestartsExhausted"
    assert "1 of 1 restarts" in status["message"]
    lab.witness.check(name)


def test_another_image_comes_with_the_next_attempt(lab: Lab) -> None:
    name = "newer"
    lab.create_with(runs_on, name, image="trainer:old")
    lab.phase(name, "Running")
    lab.change(name, image="trainer:new", suspend=True)
    lab.phase(name, "Suspended")
    lab.change(name, suspend=False)
    lab.phase(name, "Running", 2)
    job = lab.api.get("batch/v1", "Job", f"{name}-a2", lab.namespace)
    images = [c["image"] for c in job["spec"]["template"]["spec"]["containers"]]
    assert images == ["trainer:new"]


def test_a_time_to_live_that_is_set_after_the_end_acts(lab: Lab) -> None:
    """The children go; the run, its status and its claim stay."""
    name = "forgotten"
    lab.create_with(fails_once, name, storage={"size": "1Gi"})
    before = lab.completes(name)
    lab.change(name, ttlSecondsAfterFinished=0)
    wait_for(
        lambda: lab.children(name) == {("PersistentVolumeClaim", f"{name}-storage")},
        "removal of all but the claim",
    )
    after = lab.phase(name, "Complete")
    assert (after["artifacts"], after["history"]) == (before["artifacts"], before["history"])
    lab.witness.check(name)
