"""One pass over a suite's TrainingRuns, against an API server in memory with faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeApi, Fault

from drivetrain_api.artifacts.suite_record import SuiteBackend
from drivetrain_operator.cluster.errors import (
    AlreadyExistsError,
    Cause,
    ForbiddenError,
    InvalidError,
    ThrottledError,
    UnavailableError,
)
from drivetrain_operator.kubectl.runs import Run
from drivetrain_operator.kubectl.session import Connection, Session
from drivetrain_operator.suite import cluster
from drivetrain_operator.suite.cluster import ClusterSuite
from drivetrain_operator.suite.cluster_runs import found_of
from drivetrain_operator.suite.display import Board
from drivetrain_operator.suite.plan import check, outline
from drivetrain_operator.suite.record_file import RecordKeeper
from drivetrain_operator.suite.standing import stand
from drivetrain_operator.suite.suite_file import SuiteFile


class Bench:
    """A suite of three seeds, two in flight; `step` is one pass of its loop."""

    def __init__(self, file: SuiteFile, folder: Path, stale: set[str]) -> None:
        self.api = FakeApi()
        now = datetime(2026, 1, 1, tzinfo=UTC)
        standing = stand(
            file,
            outline(file),
            None,
            {},
            backend=SuiteBackend.CLUSTER,
            fresh=False,
            retry_failed=False,
            now=now,
        )
        record = standing.record
        checked = check(file, record.members, record.invocation, "lab")
        session: Any = Session(self.api, "lab", Connection())  # type: ignore[arg-type] - in its place
        self.suite = ClusterSuite(
            session=session,
            keeper=RecordKeeper(folder / file.suite.root, record),
            members={c.member.name: c for c in checked},
            stale=stale,
            suite=file.name,
            at_once=2,
            board=Board(live=False),
        )

    def step(self) -> bool:
        return asyncio.run(self.suite._pass())

    def states(self) -> list[str]:
        return [str(member.state) for member in self.suite.keeper.members]

    def reason(self, index: int) -> str:
        return self.suite.keeper.members[index].reason or ""

    def become(self, name: str, phase: str) -> None:
        """The watch shows a run in that phase."""
        run = self.api.get("trainingruns", name)
        run["status"] = {"phase": phase}
        self.suite._set.put(cluster.TRAINING_RUNS, run)


@pytest.fixture
def bench(suite_file: Callable[..., SuiteFile], folder: Path) -> Bench:
    return Bench(suite_file(seeds=3), folder, set())


def test_two_are_made_and_the_third_when_one_is_over(bench: Bench) -> None:
    assert bench.step()
    assert bench.states() == ["running", "running", "pending"]
    assert bench.step()
    assert bench.api.writes() == ["POST trainingruns", "POST trainingruns"]
    bench.become("swing-s0", "Complete")
    bench.step()
    assert bench.states() == ["complete", "running", "running"]
    bench.become("swing-s1", "Failed")
    bench.become("swing-s2", "Complete")
    assert not bench.step(), "nothing is left to do"
    assert bench.states() == ["complete", "failed", "complete"]


def test_a_member_that_misses_its_threshold_is_complete_with_the_conditions_words(
    bench: Bench,
) -> None:
    bench.step()
    run = bench.api.get("trainingruns", "swing-s0")
    complete = {
        "type": "Complete",
        "status": "True",
        "reason": "ThresholdMissed",
        "message": "a mean return of 7.5, below evaluator.threshold 100",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    run["status"] = {"phase": "Complete", "conditions": [complete]}
    bench.suite._set.put(cluster.TRAINING_RUNS, run)
    bench.become("swing-s1", "Complete")
    bench.step()
    assert bench.states() == ["complete", "complete", "running"]
    assert bench.reason(0) == f"ThresholdMissed: {complete['message']}"
    assert bench.reason(1) == ""
    assert found_of(Run.readable(run)).reason == bench.reason(0)


@pytest.mark.parametrize(
    "error", [UnavailableError("no answer"), ThrottledError("busy", status=429, retry_after=9.0)]
)
def test_a_server_without_time_is_asked_again_later(
    bench: Bench, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = 100.0
    monkeypatch.setattr(cluster.time, "monotonic", lambda: at)
    bench.api.faults.append(Fault("POST trainingruns", error))
    assert bench.step()
    assert bench.states() == ["pending"] * 3
    bench.step()
    assert len(bench.api.writes()) == 1, "not at once"
    at += 10.0
    bench.step()
    assert bench.states() == ["running", "running", "pending"]


def test_a_create_whose_answer_was_lost_is_found_to_be_ours(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = 100.0
    monkeypatch.setattr(cluster.time, "monotonic", lambda: at)
    lost = Fault("POST trainingruns", UnavailableError("lost"), written=True)
    bench.api.faults.append(lost)
    bench.step()
    at += 10.0
    bench.step()
    assert bench.states() == ["running", "running", "pending"]
    assert len(bench.api.objects) == 2


def test_a_foreign_run_of_that_name_fails_the_member_alone(bench: Bench) -> None:
    bench.api.add("trainingruns", {"metadata": {"name": "swing-s0"}, "spec": {}})
    bench.api.faults.append(Fault("POST trainingruns", AlreadyExistsError("there", status=409)))
    bench.step()
    assert bench.states() == ["failed", "running", "running"]
    assert "is not of this suite" in bench.reason(0)


def test_a_refused_member_fails_alone_with_the_servers_words(bench: Bench) -> None:
    refusal = InvalidError("no", status=422, causes=(Cause("spec.image", "is odd"),))
    bench.api.faults.append(Fault("POST trainingruns", refusal))
    bench.step()
    assert bench.states() == ["failed", "running", "running"]
    assert bench.reason(0) == "refused: spec.image: is odd"


def test_a_denied_create_stops_the_command_and_nothing_is_lost(bench: Bench) -> None:
    bench.api.faults.append(Fault("POST trainingruns", ForbiddenError("denied", status=403)))
    with pytest.raises(ForbiddenError):
        bench.step()
    assert bench.states() == ["pending"] * 3


def test_a_run_that_the_watch_lost_is_asked_for_before_it_counts_as_deleted(bench: Bench) -> None:
    bench.step()
    bench.suite._set.sweep(cluster.TRAINING_RUNS, "lab", set(), "1")
    bench.step()
    assert bench.states() == ["running", "running", "pending"]
    del bench.api.objects["trainingruns", "lab", "swing-s0"]
    bench.suite._set.sweep(cluster.TRAINING_RUNS, "lab", set(), "2")
    bench.step()
    assert bench.states() == ["failed", "running", "running"]
    assert bench.reason(0) == "was deleted from the cluster"


def test_a_stale_run_is_deleted_takes_its_room_until_it_is_gone_and_is_made_anew(
    suite_file: Callable[..., SuiteFile], folder: Path
) -> None:
    bench = Bench(suite_file(seeds=3), folder, {"swing-s0"})
    old = bench.api.add("trainingruns", {"metadata": {"name": "swing-s0"}, "spec": {}})
    bench.suite._set.put(cluster.TRAINING_RUNS, old)
    bench.step()
    assert bench.api.writes()[0] == "DELETE trainingruns swing-s0"
    (call, *_) = [c for c in bench.api.calls if c.method == "DELETE"]
    assert call.body == {
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": old["metadata"]["uid"]},
    }
    assert bench.states() == ["pending", "running", "pending"]
    bench.suite._set.delete(cluster.TRAINING_RUNS, old)
    bench.step()
    assert bench.states() == ["running", "running", "pending"]
    made = bench.api.get("trainingruns", "swing-s0")
    assert made["spec"]["experiment"]["suite"] == "swing"
