"""A pod may write its progress ConfigMap: whatever it writes there harms nobody but itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.cluster.faults.lab import Lab
from tests.support.kubernetes.api import Object, wait_for
from tests.support.kubernetes.simulated_kubelet import TOTAL_STEPS, Plan

from drivetrain_api.digest import Digest
from drivetrain_api.status import Progress


def digest(**changes: Any) -> str:
    """A report that is in order but for these fields."""
    sound = Digest(attempt=1, progress=Progress(iteration=9, env_steps=900))
    content = sound.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(content | changes)


NOTHING_OF_IT: dict[str, str] = {
    "empty": "",
    "no-json": "{",
    "array": "[]",
    "null": "null",
    "number": "1e999",
    "nan": digest(progress={"iteration": "NaN", "envSteps": 900}),
    "deep": "[" * 2000 + "]" * 2000,
    "megabyte": digest(message="x" * 1_000_000),
    "other-schema": digest(schemaVersion=2),
    "unknown-field": digest(phase="Complete"),
    "conditions": digest(conditions=[{"type": "Complete", "status": "True"}]),
    "huge": digest(progress={"iteration": 1, "envSteps": 2**70}),
    "negative": digest(progress={"iteration": -1, "envSteps": -1}),
    "float": digest(progress={"iteration": 1, "envSteps": 900.5}),
    "lone-surrogate": digest().replace('"attempt"', '"message": "\\ud800", "attempt"'),
    "nul": digest().replace('"attempt"', '"message": "\\u0000", "attempt"'),
    "escapes": digest(message="\x1b[2J\x1b]0;owned\x07"),
    "newest-attempt": digest(attempt=99),
    "older-attempt": digest(attempt=0),
    "bytes-order-mark": "\ufeff" + digest(),
    "twice": digest().replace("}", ', "attempt": 1}'),
}
"""Reports that are not to be believed, or of which only the figures may be."""
SUCCESS = digest(
    exitCode=0, runSummary={"status": "completed", "totalEnvSteps": TOTAL_STEPS}, artifacts=[]
)
OBJECTS: dict[str, Object] = {
    "finalizers": {"metadata": {"finalizers": ["example.com/hold"]}},
    "owners": {"metadata": {"ownerReferences": None}},
    "labels": {"metadata": {"labels": None}},
    "annotations": {"metadata": {"annotations": {"a": "x" * 200_000}}},
    "data": {"data": None},
    "other-keys": {"data": {"progress2": digest(), "run.json": "{}"}},
    "binary": {"binaryData": {"progress": "//79"}, "data": None},
    "immutable": {"immutable": True},
}
NAMES = (
    "success",
    *(f"report-{what}" for what in NOTHING_OF_IT),
    *(f"object-{what}" for what in OBJECTS),
)


def ends_when_told(told: set[str]) -> Callable[[str, int], Plan]:
    """A pod that does not report for itself until it ends."""

    def plan(run: str, _: int) -> Plan:
        return Plan(code=0 if run in told else None, steps=10)

    return plan


TOLD: set[str] = set()


@pytest.fixture(scope="module")
def lab(lab: Lab) -> Lab:
    """With a run for each test, all of them on their way."""
    TOLD.clear()
    for name in NAMES:
        lab.witness.distrusted.add(name)  # its figures are what anybody says
        lab.create_with(ends_when_told(TOLD), name, topology={"nodes": 1})
    return lab


def running(lab: Lab, name: str) -> Object:
    return lab.until(
        name,
        lambda s: s.get("phase") == "Running" and s.get("progress", {}).get("envSteps") == 10,
        "run that reports",
    )


def write(lab: Lab, name: str, change: Object) -> Object:
    return lab.api.patch("v1", "ConfigMap", f"{name}-progress", change, lab.namespace)


def seen(lab: Lab, name: str, before: Object) -> Object:
    """The status once what was written last is known to have been looked at.

    A run is worked on in the order of what happens to it; an edit that is answered tells
    that the operator is past what came before.
    """
    generation = before["observedGeneration"] + 1
    lab.change(name, ttlSecondsAfterFinished=generation + 100_000)
    return lab.until(
        name, lambda s: s.get("observedGeneration") == generation, "status of the new spec"
    )


def ends_well(lab: Lab, name: str) -> None:
    """The run goes on to its end, and nothing keeps its objects."""
    TOLD.add(name)
    lab.phase(name, "Complete")
    lab.witness.check(name)
    lab.delete(name)
    lab.gone(name)


@pytest.mark.parametrize("what", NOTHING_OF_IT)
def test_no_report_forges_a_condition(lab: Lab, what: str) -> None:
    name = f"report-{what}"
    before = running(lab, name)
    write(lab, name, {"data": {"progress": NOTHING_OF_IT[what]}})
    after = seen(lab, name, before)
    assert (after["phase"], after["attempt"], after["restarts"]) == ("Running", 1, 0)
    assert {c["type"] for c in after["conditions"]} == {c["type"] for c in before["conditions"]}
    assert after["progress"]["envSteps"] in {10, 900}
    assert len(json.dumps(after)) < 8192
    ends_well(lab, name)


def test_success_is_what_the_pods_exit_with(lab: Lab) -> None:
    """A report of success while the pod runs ends nothing, and a failure is one all the same."""
    name = "success"
    before = running(lab, name)
    write(lab, name, {"data": {"progress": SUCCESS}})
    after = seen(lab, name, before)
    assert after["phase"] == "Running"
    assert "finishedAt" not in after
    pod = lab.api.objects("v1", "Pod", lab.namespace, labelSelector=f"drivetrain.dev/run={name}")[0]
    lab.api.delete("v1", "Pod", pod["metadata"]["name"], lab.namespace)
    status = lab.phase(name, "Running", 2)
    assert (status["restarts"], status["history"][0]["reason"]) == (1, "AttemptFailed")
    ends_well(lab, name)


@pytest.mark.parametrize("what", OBJECTS)
def test_nothing_done_to_the_object_holds_up_the_run_or_its_deletion(lab: Lab, what: str) -> None:
    name = f"object-{what}"
    before = running(lab, name)
    write(lab, name, OBJECTS[what])
    after = seen(lab, name, before)
    assert (after["phase"], after["attempt"]) == ("Running", 1)
    TOLD.add(name)
    lab.phase(name, "Complete")
    lab.witness.check(name)
    lab.delete(name)
    wait_for(lambda: lab.run(name) is None, "deletion")
    left = {("ConfigMap", f"{name}-progress")} if what == "owners" else set()
    wait_for(lambda: lab.children(name) <= left, "deletion of the children")
