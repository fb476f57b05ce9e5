"""Somebody with rights on the status writes it: what can be told is told again, pods are safe."""

from __future__ import annotations

import pytest
from tests.cluster.faults.lab import Lab
from tests.support.kubernetes.api import Object
from tests.support.kubernetes.simulated_kubelet import Plan


def on_from_the_second(_: str, attempt: int) -> Plan:
    return Plan(code=1, steps=100) if attempt == 1 else Plan(code=None, steps=500)


def conditions(status: Object) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def hold(status: Object) -> set[str]:
    return {type_ for type_, (value, _) in conditions(status).items() if value == "True"}


def jobs(lab: Lab, name: str) -> dict[str, str]:
    found = lab.api.objects(
        "batch/v1", "Job", lab.namespace, labelSelector=f"drivetrain.dev/run={name}"
    )
    return {job["metadata"]["name"]: job["metadata"]["uid"] for job in found}


FORGED: dict[str, Object] = {
    "phase": {"phase": "Complete"},
    "message": {"message": "all is well"},
    "conditions": {"conditions": []},
    "running": {"attemptRunningAt": None},
    "attempt": {"attempt": 1},
    "no-attempt": {"attempt": 0},
    "generation": {"observedGeneration": 99},
}
NOT_THERE: dict[str, Object] = {"number": {"attempt": 7}, "job": {"jobUid": "somebody"}}
ENDS = ("Complete", "Failed")
OVER: dict[str, Object] = {"phase": {"phase": "Running"}, "conditions": {"conditions": []}}
RUNNING = (
    "emptied",
    *(f"forged-{what}" for what in FORGED),
    *(f"lost-{what}" for what in NOT_THERE),
    *(f"over-{type_.lower()}" for type_ in ENDS),
)


@pytest.fixture(scope="module")
def lab(lab: Lab) -> Lab:
    """With a run for each test, all of them on their way."""
    for name in RUNNING:
        lab.witness.distrusted.add(name)
        lab.create_with(on_from_the_second, name)
    for what in OVER:
        lab.witness.distrusted.add(f"done-{what}")
        lab.create(f"done-{what}")
    return lab


def in_its_second_attempt(lab: Lab, name: str) -> Object:
    return lab.until(
        name,
        lambda s: s.get("phase") == "Running" and s.get("progress", {}).get("envSteps") == 500,
        "second attempt that reports",
    )


@pytest.mark.parametrize("what", FORGED)
def test_what_can_be_told_from_the_cluster_is_told_again(lab: Lab, what: str) -> None:
    name = f"forged-{what}"
    before = in_its_second_attempt(lab, name)
    attempt = jobs(lab, name)
    lab.tamper(name, FORGED[what])
    after = lab.until(
        name,
        lambda s: (
            (s.get("phase"), s.get("attempt"), s.get("message"), s.get("observedGeneration"))
            == tuple(before[key] for key in ("phase", "attempt", "message", "observedGeneration"))
            and s.get("attemptRunningAt")
            and hold(s) == hold(before)
        ),
        "status as it was",
    )
    assert after["restarts"] == before["restarts"]
    assert jobs(lab, name) == attempt, "the attempt that runs is left alone"
    lab.witness.check(name)


def test_an_emptied_status_is_learnt_again(lab: Lab) -> None:
    """What only the status knew is lost: restarts, history. The attempt that runs goes on."""
    name = "emptied"
    before = in_its_second_attempt(lab, name)
    attempt = jobs(lab, name)
    lab.tamper(name, dict.fromkeys(before))
    status = lab.phase(name, "Running")
    assert (status["attempt"], status["progress"]["envSteps"]) == (2, 500)
    assert jobs(lab, name) == attempt
    lab.witness.check(name)


@pytest.mark.parametrize("what", NOT_THERE)
def test_an_attempt_that_is_not_there_is_followed_by_the_next(lab: Lab, what: str) -> None:
    """Whatever the number says, the Job that runs is ended before another one is made."""
    name, forged = f"lost-{what}", NOT_THERE[what]
    before = in_its_second_attempt(lab, name)
    number = forged.get("attempt", 2) + 1
    lab.tamper(name, forged)
    status = lab.phase(name, "Running", number)
    assert status["restarts"] == before["restarts"] + 1
    assert list(jobs(lab, name)) == [f"{name}-a{number}"]
    lab.witness.check(name)


@pytest.mark.parametrize("type_", ENDS)
def test_a_forged_end_ends_the_pods(lab: Lab, type_: str) -> None:
    """An end stands, whoever wrote it; but nothing runs on unseen."""
    name = f"over-{type_.lower()}"
    before = in_its_second_attempt(lab, name)
    end = {
        "type": type_,
        "status": "True",
        "reason": "Forged",
        "message": "over",
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    }
    lab.tamper(name, {"conditions": [*before["conditions"], end]})
    lab.phase(name, type_)
    lab.until(name, lambda _: not jobs(lab, name), "end of the Job")
    lab.until(name, lambda _: "Pod" not in {k for k, _ in lab.children(name)}, "end of the pod")
    lab.witness.check(name)


@pytest.mark.parametrize("what", OVER)
def test_a_run_that_is_over_stays_over(lab: Lab, what: str) -> None:
    name = f"done-{what}"
    before = lab.completes(name)
    lab.tamper(name, OVER[what])
    lab.until(
        name,
        lambda s: s.get("phase") == "Complete" and hold(s) == hold(before),
        "status as it was",
    )
    assert lab.witness.jobs_made(name, 3) == 0
