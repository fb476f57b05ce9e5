from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fake_api import Call, FakeApi, Fault, merge, unavailable

from drivetrain_api.status import (
    Condition,
    ConditionStatus,
    ConditionType,
    Phase,
    Progress,
    TrainingRunStatus,
)
from drivetrain_api.trainingrun import ObjectMeta
from drivetrain_operator.cluster.client import ContentType
from drivetrain_operator.cluster.errors import (
    ApiError,
    ConflictError,
    NotFoundError,
    UnavailableError,
)
from drivetrain_operator.cluster.status_writer import StatusWriter, corrections, wire
from drivetrain_operator.reconcile.snapshot import RunView

AT = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ACCEPTED = Condition(
    type=ConditionType.ACCEPTED,
    status=ConditionStatus.TRUE,
    reason="Valid",
    last_transition_time=AT,
)
RUNNING = TrainingRunStatus(
    phase=Phase.RUNNING,
    attempt=2,
    conditions=(ACCEPTED,),
    progress=Progress(iteration=3, at=AT),
    job_uid="job-1",
)


def cluster(**status: Any) -> FakeApi:
    api = FakeApi()
    run: dict[str, Any] = {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": "walk", "namespace": "lab", "uid": "run-1"},
        "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}},
    }
    if status:
        run["status"] = status
    api.add("trainingruns", run)
    return api


def seen(api: FakeApi) -> ObjectMeta:
    return ObjectMeta.model_validate(api.get("trainingruns", "walk")["metadata"])


def write(api: FakeApi, status: TrainingRunStatus, meta: ObjectMeta | None = None) -> Any:
    return asyncio.run(StatusWriter(api).write(meta or seen(api), status))


def only(calls: list[Call]) -> Call:
    assert len(calls) == 1
    return calls[0]


def test_the_whole_status_is_applied_on_what_was_observed() -> None:
    api = cluster()
    version = api.get("trainingruns", "walk")["metadata"]["resourceVersion"]
    stored = write(api, RUNNING)
    call = only(api.calls)
    assert call.words == "PATCH trainingruns/status walk"
    assert call.content_type is ContentType.APPLY_PATCH
    assert call.params == {"fieldManager": "drivetrain-operator", "force": "true"}
    assert call.body == {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": "walk", "namespace": "lab", "resourceVersion": version},
        "status": wire(RUNNING),
    }
    assert stored["status"] == wire(RUNNING)
    assert RunView.from_object(stored).status == RUNNING


def test_nothing_that_is_unset_is_sent() -> None:
    """The schema of the status refuses null."""
    assert "null" not in json.dumps(wire(RUNNING))
    assert wire(RUNNING)["conditions"][0]["lastTransitionTime"] == "2026-03-01T12:00:00Z"
    assert wire(TrainingRunStatus())["conditions"] == []


def test_a_stale_snapshot_writes_nothing() -> None:
    api = cluster()
    old = seen(api)
    api.touch("trainingruns", "walk")
    with pytest.raises(ConflictError):
        write(api, RUNNING, old)
    assert "status" not in api.get("trainingruns", "walk")


def test_a_run_that_is_gone_is_said_to_be() -> None:
    api = cluster()
    old = seen(api)
    api.objects.clear()
    with pytest.raises(NotFoundError):
        write(api, RUNNING, old)


def test_an_equal_status_moves_nothing_and_still_asks() -> None:
    api = cluster()
    write(api, RUNNING)
    version = api.get("trainingruns", "walk")["metadata"]["resourceVersion"]
    write(api, RUNNING)
    assert len(api.calls) == 2
    assert api.get("trainingruns", "walk")["metadata"]["resourceVersion"] == version


def test_what_is_dropped_goes() -> None:
    api = cluster()
    write(api, RUNNING)
    later = RUNNING.model_copy(update={"job_uid": None, "progress": None})
    assert write(api, later)["status"] == wire(later)
    assert len(api.calls) == 2


def test_what_somebody_else_wrote_goes_with_a_second_patch() -> None:
    api = cluster()
    write(api, RUNNING)
    merge(
        api.get("trainingruns", "walk")["status"],
        {"finishedAt": "2026-03-01T13:00:00Z", "progress": {"percent": 99}},
    )
    api.touch("trainingruns", "walk")
    stored = write(api, RUNNING)
    assert stored["status"] == wire(RUNNING)
    assert api.get("trainingruns", "walk")["status"] == wire(RUNNING)
    first, second = api.calls[-2:]
    assert first.content_type is ContentType.APPLY_PATCH
    assert second.content_type is ContentType.MERGE_PATCH
    assert second.body["status"] == {"finishedAt": None, "progress": {"percent": None}}
    assert second.body["metadata"]["resourceVersion"]
    assert second.params == {"fieldManager": "drivetrain-operator"}


def test_a_definition_that_is_too_old_is_called_so() -> None:
    api = cluster()
    words = "failed to create typed patch object: .status.bogus: field not declared in schema"
    api.faults.append(Fault("PATCH", UnavailableError(words, status=500)))
    with pytest.raises(ApiError, match=r"older than this operator, upgrade it: .*status\.bogus"):
        write(api, RUNNING)


@pytest.mark.parametrize("status", [500, 503, 0])
def test_other_trouble_is_raised_as_it_is(status: int) -> None:
    api = cluster()
    api.faults.append(Fault("PATCH", unavailable(status)))
    with pytest.raises(UnavailableError):
        write(api, RUNNING)


VALUES = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("abc", max_size=2), VALUES, max_size=4)


@given(wanted=OBJECTS, stored=OBJECTS)
def test_the_correction_makes_them_equal(wanted: dict[str, Any], stored: dict[str, Any]) -> None:
    changes = corrections(wanted, stored)
    assert corrections(wanted, wanted) == {}
    assert bool(changes) == (
        json.dumps(wanted, sort_keys=True) != json.dumps(stored, sort_keys=True)
    )
    merge(stored, changes)
    assert stored == wanted
