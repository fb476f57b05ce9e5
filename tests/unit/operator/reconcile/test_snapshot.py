from __future__ import annotations

import pytest
from fake_cluster import FakeCluster, manifest
from pydantic import ValidationError

from drivetrain_api.compose import parse_run
from drivetrain_api.status import Phase, TrainingRunStatus
from drivetrain_operator.reconcile.snapshot import RunView


def test_a_run_is_read_with_its_status() -> None:
    view = RunView.from_object(manifest() | {"status": {"phase": "Running", "attempt": 2}})
    assert (view.metadata.name, view.metadata.uid) == ("walk", "run-uid-1")
    assert view.spec is not None
    assert view.spec.task.name == "hopper"
    assert view.status == TrainingRunStatus(phase=Phase.RUNNING, attempt=2)
    assert view.refusals == ()


def test_a_parsed_run_has_the_same_view() -> None:
    assert RunView.of(parse_run(manifest())) == RunView.from_object(manifest())


def test_unset_fields_stay_unset_through_the_view() -> None:
    view = RunView.from_object(manifest(seed=5))
    assert view.spec is not None
    run = view.with_spec(view.spec)
    assert run.spec.model_fields_set == {"algo", "task", "seed"}


def test_a_refused_spec_keeps_the_run_and_its_status() -> None:
    view = RunView.from_object(manifest(seed="x") | {"status": {"attempt": 3}})
    assert view.spec is None
    assert [violation.path for violation in view.refusals] == ["seed"]
    assert view.status.attempt == 3


def test_a_name_that_is_too_long_is_refused_like_a_spec() -> None:
    name = "n" * 60
    cluster = FakeCluster()
    cluster.run["metadata"]["name"] = name
    cluster.settle()
    assert cluster.status.phase is Phase.PENDING
    view = RunView.from_object(cluster.run)
    assert view.metadata.name == name
    assert view.refusals[0].path == "metadata.name"


@pytest.mark.parametrize("status", [{"attempt": -1}, {"fromTheFuture": 1}, {"attempt": "2"}])
def test_a_status_that_cannot_be_read_is_never_taken_for_empty(status: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RunView.from_object(manifest() | {"status": status})


@pytest.mark.parametrize("status", [None, {}])
def test_no_status_is_an_empty_one(status: object) -> None:
    assert RunView.from_object(manifest() | {"status": status}).status == TrainingRunStatus()
