from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.fake_api import FakeApi, Fault, conflict, unavailable

from drivetrain_api.status import TrainingRunStatus
from drivetrain_api.trainingrun import ObjectMeta
from drivetrain_operator.cluster.apply import Applier
from drivetrain_operator.cluster.errors import (
    AlreadyExistsError,
    ApiError,
    Cause,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ThrottledError,
)
from drivetrain_operator.cluster.keys import RunKey
from drivetrain_operator.cluster.resources import Resource
from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.reconcile.decision import (
    Action,
    Create,
    Decision,
    DeleteChild,
    DeleteJob,
    DeletePod,
    EventRecord,
    EventType,
    StripFinalizers,
)
from drivetrain_operator.reconcile.engine import reconcile
from drivetrain_operator.reconcile.fields import Object
from drivetrain_operator.reconcile.snapshot import ForeignObject, Observed, RefusedChild, RunView

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
KEY = RunKey("lab", "walk")
BEGAN = EventRecord(EventType.NORMAL, "AttemptStarted", "attempt 1 begins")
STATUS = TrainingRunStatus(attempt=1)


@dataclass
class Notes:
    """What the applier told its neighbours."""

    foreign: dict[tuple[ChildKind, str], ForeignObject] = field(default_factory=dict)
    refused: RefusedChild | None = None
    events: list[EventRecord] = field(default_factory=list)
    absorbed: list[tuple[str, str, str]] = field(default_factory=list)
    """Kind, name and version of what the next snapshot holds."""

    def absorb(self, resource: Resource, obj: Object) -> None:
        meta = obj["metadata"]
        self.absorbed.append((resource.kind, meta["name"], meta["resourceVersion"]))

    def note_foreign(self, key: RunKey, foreign: ForeignObject) -> None:
        assert key == KEY
        self.foreign[foreign.kind, foreign.name] = foreign

    def note_refused(self, key: RunKey, refused: RefusedChild) -> None:
        assert key == KEY
        self.refused = refused

    def note_made(self, key: RunKey, kind: ChildKind, name: str) -> None:
        assert key == KEY
        self.foreign.pop((kind, name), None)

    def record(self, run: ObjectMeta, events: Sequence[EventRecord]) -> None:
        assert run.name == "walk"
        self.events.extend(events)


@dataclass
class Bench:
    """An API server with one run, and the applier on it."""

    api: FakeApi = field(default_factory=FakeApi)
    notes: Notes = field(default_factory=Notes)
    stored: list[Object] = field(default_factory=list)
    """The run, each time its status was stored."""

    def __post_init__(self) -> None:
        self.api.add(
            "trainingruns",
            {
                "apiVersion": "drivetrain.dev/v1alpha1",
                "kind": "TrainingRun",
                "metadata": {
                    "name": "walk",
                    "uid": "run-1",
                    "generation": 1,
                    "creationTimestamp": "2026-03-01T12:00:00Z",
                },
                "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}},
            },
        )

    def view(self) -> RunView:
        return RunView.from_object(copy.deepcopy(self.api.get("trainingruns", "walk")))

    def apply(self, decision: Decision, view: RunView | None = None) -> ForeignObject | None:
        applier = Applier(self.api, self.notes, self.notes, now=lambda: NOW)
        return asyncio.run(applier.apply(view or self.view(), decision, self.stored.append))

    def act(self, *actions: Action) -> ForeignObject | None:
        return self.apply(Decision(self.view().status, actions))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def child(kind: str = "Job", name: str = "walk-a1", owner: str = "run-1") -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": {
            "name": name,
            "ownerReferences": [{"kind": "TrainingRun", "uid": owner, "controller": True}],
        },
    }


CREATE = Create(ChildKind.JOB, "walk-a1", child())
SERVICE = Create(ChildKind.SERVICE, "walk-a1", child("Service"))


# --- order -------------------------------------------------------------------------------


def test_status_first_then_actions_then_events(bench: Bench) -> None:
    taken = bench.apply(Decision(STATUS, (SERVICE, CREATE), (BEGAN,)))
    assert bench.api.words == ["PATCH trainingruns/status walk", "POST services", "POST jobs"]
    assert bench.notes.events == [BEGAN]
    assert taken is None
    assert [run["status"]["attempt"] for run in bench.stored] == [1]


def test_a_decision_that_changes_nothing_sends_nothing(bench: Bench) -> None:
    assert bench.apply(Decision(bench.view().status)) is None
    assert bench.api.calls == []
    assert bench.stored == []


def test_an_unchanged_status_is_written_where_it_fences(bench: Bench) -> None:
    bench.act(CREATE)
    assert bench.api.words == ["PATCH trainingruns/status walk", "POST jobs"]


def test_deletions_need_no_fence(bench: Bench) -> None:
    bench.act(DeleteJob("walk-a1", "uid-1"))
    assert bench.api.words == ["DELETE jobs walk-a1"]


def test_a_stale_snapshot_applies_nothing_at_all(bench: Bench) -> None:
    old = bench.view()
    bench.api.touch("trainingruns", "walk")
    with pytest.raises(ConflictError):
        bench.apply(Decision(STATUS, (CREATE, DeleteJob("x", "y")), (BEGAN,)), old)
    assert bench.api.words == ["PATCH trainingruns/status walk"]
    assert bench.notes.events == []


def test_the_first_failure_stops_the_actions_but_not_the_events(bench: Bench) -> None:
    """Their transition is written: no later pass would tell of it."""
    bench.api.faults.append(Fault("POST services", unavailable()))
    with pytest.raises(ApiError):
        bench.apply(Decision(STATUS, (SERVICE, CREATE), (BEGAN,)))
    assert bench.api.words[-1] == "POST services"
    assert bench.notes.events == [BEGAN]
    assert len(bench.stored) == 1


def test_a_whole_attempt_is_created_once(bench: Bench) -> None:
    """What reconcile decides on a fresh run, applied, and applied again after a time-out."""
    bench.api.faults.append(Fault("POST jobs", unavailable(), written=True))
    decision = reconcile(Observed(bench.view()), NOW)
    with pytest.raises(ApiError):
        bench.apply(decision)
    made = {(plural, name) for plural, _, name in bench.api.objects}
    assert ("jobs", "walk-a1") in made
    versions = {key: o["metadata"]["resourceVersion"] for key, o in bench.api.objects.items()}
    again = reconcile(Observed(bench.view()), NOW)
    assert again.fenced
    assert bench.apply(again) is None
    assert {(plural, name) for plural, _, name in bench.api.objects} == made
    assert versions == {k: o["metadata"]["resourceVersion"] for k, o in bench.api.objects.items()}


# --- create ------------------------------------------------------------------------------


def test_a_create_names_who_it_is_and_sends_the_manifest(bench: Bench) -> None:
    bench.act(CREATE)
    call = bench.api.calls[-1]
    assert (call.namespace, call.params) == ("lab", {"fieldManager": "drivetrain-operator"})
    assert call.body == CREATE.manifest


def test_answers_to_writes_are_in_the_next_snapshot(bench: Bench) -> None:
    """A watch that is a moment behind must not have everything made once more."""
    bench.apply(reconcile(Observed(bench.view()), NOW))
    stored = {
        (o["kind"], n): o["metadata"]["resourceVersion"]
        for (_, _, n), o in bench.api.objects.items()
    }
    kinds = [kind for kind, _, _ in bench.notes.absorbed]
    assert kinds == ["TrainingRun", "ConfigMap", "ConfigMap", "Job"]
    assert all(stored[kind, name] == version for kind, name, version in bench.notes.absorbed)


def test_our_own_object_is_a_success(bench: Bench) -> None:
    bench.api.add("jobs", child())
    bench.notes.foreign[ChildKind.JOB, "walk-a1"] = ForeignObject(ChildKind.JOB, "walk-a1", NOW)
    assert bench.act(CREATE) is None
    assert bench.notes.foreign == {}
    assert bench.notes.absorbed[-1][:2] == ("Job", "walk-a1")


@pytest.mark.parametrize(
    "owners",
    [
        [],
        [{"kind": "TrainingRun", "uid": "run-0", "controller": True}],
        [{"kind": "TrainingRun", "uid": "run-1"}],
    ],
    ids=["none", "a run of the same name before", "not as its controller"],
)
def test_anybody_elses_object_is_noted_and_left_alone(bench: Bench, owners: list[Any]) -> None:
    theirs = child("Service")
    theirs["metadata"]["ownerReferences"] = owners
    bench.api.add("services", theirs)
    before = copy.deepcopy(theirs)
    taken = bench.act(SERVICE, CREATE)
    assert taken == ForeignObject(ChildKind.SERVICE, "walk-a1", NOW)
    assert bench.notes.foreign == {(ChildKind.SERVICE, "walk-a1"): taken}
    assert bench.api.get("services", "walk-a1") == before
    assert bench.api.find("jobs", "walk-a1") is None


def test_a_foreign_name_that_was_freed_is_forgotten(bench: Bench) -> None:
    bench.api.add("services", child("Service", owner="run-0"))
    bench.act(SERVICE)
    del bench.api.objects["services", "lab", "walk-a1"]
    assert bench.act(SERVICE) is None
    assert bench.notes.foreign == {}


def test_our_own_object_that_is_going_is_waited_for(bench: Bench) -> None:
    going = child()
    going["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    bench.api.add("jobs", going)
    with pytest.raises(AlreadyExistsError):
        bench.act(CREATE)
    assert bench.notes.foreign == {}


def test_an_object_that_goes_between_the_two_looks_is_tried_again(bench: Bench) -> None:
    bench.api.add("jobs", child())
    bench.api.faults.append(Fault("GET jobs", before=lambda: bench.api.objects.pop(
        ("jobs", "lab", "walk-a1"))))  # fmt: skip
    with pytest.raises(AlreadyExistsError):
        bench.act(CREATE)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ForbiddenError("exceeded quota: q", status=403), True),
        (InvalidError("policy 'p' denied request", status=422), True),
        (ApiError("bad", status=400), True),
        (unavailable(500), True),
        (unavailable(503), False),
        (unavailable(0), False),
        (ThrottledError("slow down", status=429), False),
        (conflict("quota changed"), False),
        (
            ForbiddenError("ends", status=403, causes=(Cause("metadata.namespace", "ends"),)),
            False,
        ),
    ],
)
def test_a_refused_child_is_in_the_next_snapshot(bench: Bench, error: ApiError, told: bool) -> None:
    bench.api.faults.append(Fault("POST jobs", error))
    with pytest.raises(type(error)):
        bench.act(CREATE)
    noted = RefusedChild(ChildKind.JOB, "walk-a1", error.message) if told else None
    assert bench.notes.refused == noted


# --- delete ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plural", "action", "options"),
    [
        ("jobs", lambda uid: DeleteJob("walk-a1", uid), {}),
        ("pods", lambda uid: DeletePod("walk-a1", uid), {}),
        ("pods", lambda uid: DeletePod("walk-a1", uid, 0), {"gracePeriodSeconds": 0}),
    ],
)
def test_this_very_object_is_deleted_in_the_background(
    bench: Bench, plural: str, action: Callable[[str], Action], options: dict[str, Any]
) -> None:
    uid = bench.api.add(plural, child())["metadata"]["uid"]
    bench.act(action(uid))
    assert bench.api.find(plural, "walk-a1") is None
    assert bench.api.calls[-1].body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": uid},
        **options,
    }


@pytest.mark.parametrize(
    "action", [DeleteJob("walk-a1", "uid-0"), DeletePod("walk-a1", "uid-0", 0)]
)
def test_another_object_of_that_name_and_absence_are_success(bench: Bench, action: Action) -> None:
    bench.act(action)
    bench.api.add("jobs", child())
    bench.api.add("pods", child("Pod"))
    bench.act(action)
    assert bench.api.find("jobs", "walk-a1") is not None
    assert bench.api.find("pods", "walk-a1") is not None


@pytest.mark.parametrize(
    "error", [unavailable(), conflict("etcdserver: too many requests"), ThrottledError("slow")]
)
def test_a_failed_deletion_is_raised(bench: Bench, error: ApiError) -> None:
    """To be tried again: nothing else would make the run be looked at soon."""
    bench.api.faults.append(Fault("DELETE jobs", error))
    with pytest.raises(type(error)):
        bench.act(DeleteJob("walk-a1", "uid-0"))


@pytest.mark.parametrize(
    ("kind", "plural"), [(ChildKind.SERVICE, "services"), (ChildKind.ROLE_BINDING, "rolebindings")]
)
def test_a_child_is_deleted_where_it_is_ours(bench: Bench, kind: ChildKind, plural: str) -> None:
    action = DeleteChild(kind, "walk-a1", "run-1")
    bench.act(action)
    bench.api.add(plural, child(kind.value, owner="run-0"))
    bench.act(action)
    assert bench.api.find(plural, "walk-a1") is not None
    uid = bench.api.add(plural, child(kind.value))["metadata"]["uid"]
    bench.act(action)
    assert bench.api.find(plural, "walk-a1") is None
    assert bench.api.calls[-1].body["preconditions"] == {"uid": uid}


def test_a_child_that_is_replaced_between_look_and_deletion_stays(bench: Bench) -> None:
    bench.api.add("services", child("Service"))

    def replaced() -> None:
        bench.api.add("services", child("Service", owner="run-0"))

    bench.api.faults.append(Fault("DELETE services", before=replaced))
    bench.act(DeleteChild(ChildKind.SERVICE, "walk-a1", "run-1"))
    assert bench.api.find("services", "walk-a1") is not None


# --- finalizers --------------------------------------------------------------------------


def test_finalizers_go_and_nothing_else(bench: Bench) -> None:
    progress = child("ConfigMap", "walk-progress") | {"data": {"progress": "x"}}
    progress["metadata"]["finalizers"] = ["evil.example/hang"]
    uid = bench.api.add("configmaps", progress)["metadata"]["uid"]
    bench.act(StripFinalizers("walk-progress", uid))
    found = bench.api.get("configmaps", "walk-progress")
    assert "finalizers" not in found["metadata"]
    assert found["data"] == {"progress": "x"}


def test_finalizers_of_another_object_stay(bench: Bench) -> None:
    bench.act(StripFinalizers("walk-progress", "uid-0"))
    other = child("ConfigMap", "walk-progress", owner="run-0")
    other["metadata"]["finalizers"] = ["theirs.example/keep"]
    bench.api.add("configmaps", other)
    bench.act(StripFinalizers("walk-progress", "uid-0"))
    assert bench.api.get("configmaps", "walk-progress")["metadata"]["finalizers"]


def test_a_refusal_for_another_reason_is_raised(bench: Bench) -> None:
    for error in (
        InvalidError("no", status=422, causes=(Cause("data", "too long"),)),
        conflict("modified"),
    ):
        bench.api.faults.append(Fault("PATCH configmaps", error))
        with pytest.raises(type(error)):
            bench.act(StripFinalizers("walk-progress", "uid-0"))


def test_a_run_that_is_gone_creates_nothing(bench: Bench) -> None:
    view = bench.view()
    bench.api.objects.clear()
    with pytest.raises(NotFoundError):
        bench.apply(Decision(STATUS, (CREATE,)), view)
    assert bench.api.objects == {}
