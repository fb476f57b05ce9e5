from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from drivetrain_api.compose import parse_run
from drivetrain_api.errors import SpecError
from drivetrain_api.status import TrainingRunStatus
from drivetrain_operator.local.store import EVENTS_KEPT, LocalStore, as_object
from drivetrain_operator.reconcile.decision import EventRecord, EventType

if TYPE_CHECKING:
    from drivetrain_api.trainingrun import TrainingRun

MakeRun = Callable[..., "TrainingRun"]
NOW = datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


def apply(store: LocalStore, run: TrainingRun) -> TrainingRun:
    return store.apply(run, storage=Path("/data"), now=NOW)


def test_a_new_run_gets_what_an_api_server_sets(store: LocalStore, make_run: MakeRun) -> None:
    run = apply(store, make_run())
    assert len(run.metadata.uid) == 36
    assert run.metadata.generation == 1
    assert run.metadata.creation_timestamp == NOW.replace(microsecond=0)
    assert run.metadata.resource_version == "1"
    assert run.metadata.annotations == {"drivetrain.dev/local-storage": "/data"}
    assert store.names() == ("cheetah",)
    assert store.get("cheetah") == run
    assert store.get("other") is None


def test_what_the_user_left_out_stays_out(store: LocalStore, make_run: MakeRun) -> None:
    apply(store, make_run())
    found = store.get("cheetah")
    assert found is not None
    assert found.spec.model_dump(exclude_unset=True) == make_run().spec.model_dump(
        exclude_unset=True
    )
    written = json.loads((store.folder("cheetah") / "trainingrun.json").read_text())
    assert set(written["spec"]) == {"algo", "task", "training", "gracePeriodSeconds", "restart"}
    assert parse_run(as_object(found)) == found


def test_applying_the_same_keeps_generation_and_status(
    store: LocalStore, make_run: MakeRun
) -> None:
    first = apply(store, make_run())
    store.set_status("cheetah", TrainingRunStatus(attempt=3))
    again = apply(store, make_run())
    assert again.metadata.uid == first.metadata.uid
    assert again.metadata.generation == 1
    assert again.status.attempt == 3


def test_a_change_raises_the_generation(store: LocalStore, make_run: MakeRun) -> None:
    apply(store, make_run())
    changed = apply(store, make_run(gracePeriodSeconds=7))
    assert changed.metadata.generation == 2
    assert changed.spec.grace_period_seconds == 7


def test_another_namespace_is_another_run(store: LocalStore, make_run: MakeRun) -> None:
    apply(store, make_run())
    run = make_run()
    moved = run.model_copy(
        update={"metadata": run.metadata.model_copy(update={"namespace": "team"})}
    )
    with pytest.raises(SpecError, match=r"metadata\.namespace: the stored run is in 'default'"):
        apply(store, moved)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": {"name": "ant"}}, 'task.name: task is {}; stored "half_cheetah"; got "ant"'),
        ({"seed": 7}, "seed: seed is {}; stored nothing; got 7"),
        (
            {"algo": {"name": "sac", "numEnvs": 8}},
            "algo.num_envs: algo is {}; stored nothing; got 8",
        ),
        (
            {"checkpoint": {"resumeFrom": "x"}},
            'checkpoint.resume_from: checkpoint.resumeFrom is {}; stored nothing; got "x"',
        ),
    ],
)
def test_what_the_server_would_refuse_is_refused(
    store: LocalStore, make_run: MakeRun, change: dict[str, Any], words: str
) -> None:
    first = apply(store, make_run())
    with pytest.raises(SpecError) as caught:
        apply(store, make_run(**change))
    assert str(caught.value) == words.format("immutable: create another TrainingRun")
    assert store.get("cheetah") == first


def test_suspend_is_recorded_and_resumed_by_the_manifest(
    store: LocalStore, make_run: MakeRun
) -> None:
    apply(store, make_run())
    held = store.suspend("cheetah", by="the user")
    assert held.spec.suspend is True
    assert held.metadata.generation == 2
    assert held.metadata.annotations["drivetrain.dev/suspended-by"] == "the user"
    assert store.suspend("cheetah", by="the user").metadata.generation == 2
    resumed = apply(store, make_run())
    assert resumed.spec.suspend is False
    assert resumed.metadata.generation == 3
    assert set(resumed.metadata.annotations) == {"drivetrain.dev/local-storage"}


def test_suspending_nothing_is_an_error(store: LocalStore) -> None:
    with pytest.raises(LookupError, match="no run 'cheetah'"):
        store.suspend("cheetah", by="x")


@pytest.mark.parametrize("content", ["{", '{"spec": {}}', '{"kind": "Pod"}'])
def test_a_run_that_cannot_be_read_is_named(
    store: LocalStore, make_run: MakeRun, content: str
) -> None:
    apply(store, make_run())
    path = store.folder("cheetah") / "trainingrun.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"^{path}: "):
        store.get("cheetah")


def test_children_come_and_go(store: LocalStore) -> None:
    child: dict[str, Any] = {"kind": "Job", "metadata": {"name": "b"}}
    store.put_object("cheetah", child)
    store.put_object("cheetah", {**child, "metadata": {"name": "a"}})
    assert [o["metadata"]["name"] for o in store.objects("cheetah", "Job")] == ["a", "b"]
    store.remove_object("cheetah", "Job", "a")
    store.remove_object("cheetah", "Job", "a")
    assert store.objects("cheetah", "Job") == (child,)
    assert store.objects("cheetah", "Pod") == ()


def test_events_are_bounded(store: LocalStore) -> None:
    events = [EventRecord(EventType.NORMAL, f"R{i}", "m") for i in range(EVENTS_KEPT + 5)]
    store.record("cheetah", events[:3], NOW)
    store.record("cheetah", events[3:], NOW)
    found = store.events("cheetah")
    assert len(found) == EVENTS_KEPT
    assert found[-1] == {
        "time": "2030-01-02T03:04:05Z",
        "type": "Normal",
        "reason": f"R{EVENTS_KEPT + 4}",
        "message": "m",
    }


def test_a_removed_run_is_gone(store: LocalStore, make_run: MakeRun) -> None:
    first = apply(store, make_run())
    store.put_object("cheetah", {"kind": "Job", "metadata": {"name": "b"}})
    store.remove("cheetah")
    assert store.names() == ()
    assert store.objects("cheetah", "Job") == ()
    assert apply(store, make_run()).metadata.uid != first.metadata.uid
