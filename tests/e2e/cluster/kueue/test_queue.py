"""Runs that wait for Kueue, and those that it takes the nodes away from: the real one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster.conftest import ROOT, Images, Release
from tests.e2e.cluster.kueue.conftest import FIRST, SECOND, URGENT, Queue
from tests.e2e.cluster.kueue.queued_run import PATIENCE_S, QueuedRun
from tests.support.kubernetes.api import Object, wait_for
from tests.support.kubernetes.kubectl import Kubectl
from tests.support.kubernetes.kueue import Kueue
from tests.support.kubernetes.terminal import Guide
from tests.support.tiny_sac import TINY_SAC

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ENDLESS = 1_000_000
"""No run gets there: none ends before it is disturbed."""
SHORT = 400
GUIDE = Guide(ROOT / "docs" / "guide" / "kueue.md")
_REQUESTS = re.compile(r"^drivetrain_api_requests_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def spec(steps: int, **sections: Any) -> Object:
    """A run of tiny networks that seldom checkpoints but when it stops."""
    return {
        "algo": {**TINY_SAC, "updatesPerStep": 1},
        "task": {"name": "inverted_pendulum"},
        "training": {"totalEnvSteps": steps, "logger": "none"},
        "storage": {"size": "1Gi"},
        "checkpoint": {"interval": ENDLESS},
        "restart": {"maxRestarts": 0},
        "gracePeriodSeconds": 30,
        **sections,
    }


@pytest.fixture
def writes(release: Release) -> Callable[[], set[str]]:
    """Verbs by which the operator wrote Jobs since the test began, by its own count."""
    before = _requests(release)
    return lambda: {
        verb for verb, count in _requests(release).items() if count > before.get(verb, 0)
    }


def _requests(release: Release) -> dict[str, float]:
    (pod,) = release.kubectl.list("pods", "--selector", "app.kubernetes.io/component=operator")
    path = f"/api/v1/namespaces/{release.namespace}/pods/{pod['metadata']['name']}:8080"
    text = release.kubectl("get", "--raw", f"{path}/proxy/metrics")
    found: dict[str, float] = {}
    for name, value in _REQUESTS.findall(text):
        labels = dict(_LABEL.findall(name))
        if labels["resource"] == "jobs" and labels["verb"] not in {"get", "list", "watch"}:
            found[labels["verb"]] = found.get(labels["verb"], 0.0) + float(value)
    return found


def test_a_preempted_run_goes_on_in_the_same_job_once_there_is_room(
    queue: Queue,
    namespace: Kubectl,
    images: Images,
    writes: Callable[[], set[str]],
    tmp_path: Path,
) -> None:
    queue.give(1, held=True)
    run = QueuedRun(namespace, "patient")
    run.submit(spec(ENDLESS))
    assert run.waits()["phase"] == "Pending"
    assert run.condition("Scheduled") == ("False", "Queued", "waits in LocalQueue robots")
    job = run.job()
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["generation"] == 1, "it was born so"
    assert not run.pods()

    queue.give(1)
    first_since = moment(run.reaches("Running")["attemptRunningAt"])
    assert selector(run.job()) == {FIRST: "yes"}
    run.trains()
    urgent = QueuedRun(namespace, "urgent")
    urgent.submit(spec(ENDLESS), URGENT)

    first_active = run.waits()["activeSeconds"]
    first_until = run.changed_at("Running")
    urgent.reaches("Running")
    held = run.checkpoints()
    assert run.phase() == "Pending"
    assert selector(run.job()) == {}, "Kueue took back what its flavor asked for"

    queue.give(1, 1)
    status = run.reaches("Running")
    second_since = moment(status["attemptRunningAt"])
    again = run.job()
    assert again["metadata"]["uid"] == job["metadata"]["uid"]
    assert selector(again) == {SECOND: "yes"}
    run.trains(beyond=held)
    assert manager_of_suspend(namespace, again["metadata"]["name"]) == ["kueue"]

    run.suspend(suspend=True)
    status = run.reaches("Suspended")
    wait_for(lambda: not run.workloads(), "end of the Workload", PATIENCE_S, 0.5)
    assert run.axis == sorted(run.axis), "the step axis goes on where it was left"
    assert run.checkpoints() > held
    counts = {key: status[key] for key in ("attempt", "restarts", "disruptions")}
    assert counts == {"attempt": 1, "restarts": 0, "disruptions": 0}
    (record,) = status["history"]
    assert (record["reason"], record["counted"]) == ("SuspendedBySpec", False)
    assert first_active == seconds(first_since, first_until)
    second = (moment(record["endedAt"]) - second_since).total_seconds()
    expected = pytest.approx(first_active + second, abs=2)
    assert status["activeSeconds"] == expected, "waiting is not being active"
    assert writes() == {"create", "delete"}, "Kueue alone suspends and resumes a Job"

    brief = QueuedRun(namespace, "brief")
    brief.submit(spec(SHORT))
    done = brief.reaches("Complete")
    assert (done["attempt"], done["runSummary"]["totalEnvSteps"]) == (1, SHORT)
    files = namespace.read_volume(status["storage"], images.trainer.name, tmp_path)
    assert len(list(files.glob("logs/sac/inverted_pendulum/*/"))) == 1, "one, whatever stopped it"


def test_a_deactivated_run_waits_until_it_is_activated(
    release: Release, queue: Queue, namespace: Kubectl
) -> None:
    del release  # the operator works
    queue.give(1)
    run = QueuedRun(namespace, "switched")
    run.submit(spec(ENDLESS))
    run.trains()
    job = run.job()

    run.activate(active=False)
    run.waits()
    held = run.checkpoints()
    assert run.condition("Running")[1] == "Queued"
    run.ends_its_pods()

    run.activate(active=True)
    status = run.reaches("Running")
    assert run.job()["metadata"]["uid"] == job["metadata"]["uid"]
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (1, 0, 0)
    assert status["progress"]["checkpointEnvSteps"] == held

    run.delete()
    run.leaves_nothing()


def test_a_run_of_two_waits_for_room_for_both_and_is_ours_to_suspend_and_delete(
    queue: Queue, namespace: Kubectl, writes: Callable[[], set[str]]
) -> None:
    queue.give(1)
    run = QueuedRun(namespace, "pair")
    run.submit(spec(ENDLESS, topology={"nodes": 2}))
    run.waits()
    workload = wait_for(run.workload, "Workload of the run", PATIENCE_S, 0.5)
    assert workload["spec"]["podSets"][0]["count"] == 2
    assert not run.pods(), "one pod alone could do nothing"

    run.suspend(suspend=True)
    run.reaches("Suspended")
    wait_for(lambda: not run.workloads(), "end of the Workload", PATIENCE_S, 0.5)

    run.suspend(suspend=False)
    wait_for(lambda: run.status()["attempt"] == 2, "attempt 2", PATIENCE_S, 0.5)
    status = run.waits()
    assert (status["restarts"], status["activeSeconds"]) == (0, 0)
    assert run.job(2)["metadata"]["generation"] == 1
    assert not run.pods()
    run.delete()
    run.leaves_nothing()
    assert writes() == {"create", "delete"}


def test_kueue_takes_the_objects_of_the_guide(
    release: Release, kueue: Kueue, namespace: Kubectl
) -> None:
    del release, kueue  # the definitions are there
    for file in ("queues.yaml", "run.yaml"):
        for item in GUIDE.objects(file):
            text = json.dumps(item)
            namespace("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)


def moment(text: str) -> datetime:
    """As the status has it."""
    return datetime.fromisoformat(text)


def seconds(since: datetime, until: datetime) -> object:
    """Between two moments; the status has all three rounded."""
    return pytest.approx((until - since).total_seconds(), abs=2)


def selector(job: Object) -> Object:
    """Where the pods of a Job may run."""
    return dict(job["spec"]["template"]["spec"].get("nodeSelector") or {})


def manager_of_suspend(kubectl: Kubectl, job: str) -> list[str]:
    """Who wrote `suspend` of a Job last."""
    text = kubectl("get", "job", job, "--output", "json", "--show-managed-fields")
    return [
        entry["manager"]
        for entry in json.loads(text)["metadata"]["managedFields"]
        if "f:suspend" in entry["fieldsV1"].get("f:spec", {})
    ]
