from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_api import labels
from drivetrain_operator.cluster.resources import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    PODS,
    TRAINING_RUNS,
    Resource,
)
from drivetrain_operator.cluster.store import EVENTS_OF_A_RUN, RunKey, Store
from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.reconcile.snapshot import ForeignObject, RefusedChild

Object = dict[str, Any]
WALK = RunKey("team", "walk")


def a_run(name: str = "walk", version: int = 1, uid: str = "u", **more: Any) -> Object:
    return {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": uid,
            "resourceVersion": str(version),
            "generation": 1,
            **more.pop("metadata", {}),
        },
        "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}},
        **more,
    }


def child(name: str, version: int = 1, run: str | None = "walk", **more: Any) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-of-{name}",
            "resourceVersion": str(version),
            "labels": {labels.RUN: run} if run is not None else {},
        },
        **more,
    }


def event(name: str, version: int = 1, job: str = "walk-a1", **more: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "team", "resourceVersion": str(version)},
        "involvedObject": {"kind": "Job", "name": job, "uid": f"uid-of-{job}"},
        "type": "Warning",
        "reason": "FailedCreate",
        **more,
    }


class Known:
    """A store, and whom it told."""

    def __init__(self) -> None:
        self.touched: list[RunKey] = []
        self.store = Store(self.touched.append)

    def told(self) -> list[RunKey]:
        told = self.touched.copy()
        self.touched.clear()
        return told


@pytest.fixture
def known() -> Known:
    known = Known()
    known.store.put(TRAINING_RUNS, a_run())
    known.told()
    return known


def names(known: Known, what: str = "jobs") -> list[str]:
    observed = known.store.observed(WALK)
    assert observed is not None
    return [view.meta.name for view in getattr(observed, what)]


def test_a_snapshot_holds_everything_around_the_run_in_order_of_names(known: Known) -> None:
    store = known.store
    store.put(PODS, child("walk-a1-1"))
    store.put(PODS, child("walk-a1-0"))
    store.put(JOBS, child("walk-a1"))
    store.put(CONFIG_MAPS, child("walk-progress"))
    store.put(EVENTS, event("e1"))
    store.put(EVENTS, event("of-a-job-that-is-gone", job="walk-a9"))
    store.put(JOBS, child("other-a1", run="other"))
    assert known.told() == [WALK] * 6 + [RunKey("team", "other")]
    observed = store.observed(WALK)
    assert observed is not None
    assert observed.run.metadata.resource_version == "1"
    assert names(known) == ["walk-a1"]
    assert names(known, "pods") == ["walk-a1-0", "walk-a1-1"]
    assert names(known, "config_maps") == ["walk-progress"]
    assert [e.job_uid for e in observed.job_events] == ["uid-of-walk-a1"]
    assert store.observed(RunKey("team", "other")) is None
    assert store.observed(RunKey("elsewhere", "walk")) is None


def test_children_may_come_before_their_run(known: Known) -> None:
    known.store.put(JOBS, child("late-a1", run="late"))
    known.store.put(TRAINING_RUNS, a_run("late"))
    assert known.told() == [RunKey("team", "late")] * 2
    observed = known.store.observed(RunKey("team", "late"))
    assert observed is not None
    assert len(observed.jobs) == 1


def test_a_change_that_nobody_decides_on_is_told_to_nobody(known: Known) -> None:
    store = known.store
    store.put(JOBS, child("walk-a1", 1, status={"active": 1}))
    store.put(TRAINING_RUNS, a_run(version=2, metadata={"managedFields": [1]}))
    known.told()
    store.put(JOBS, child("walk-a1", 2, status={"active": 1, "uncountedTerminatedPods": {}}))
    assert known.told() == []
    store.put(JOBS, child("walk-a1", 3, status={"active": 0}))
    assert known.told() == [WALK]
    observed = store.observed(WALK)
    assert observed is not None
    assert observed.run.metadata.resource_version == "2", "for the next write"


def test_what_answers_our_own_write_is_told_to_nobody(known: Known) -> None:
    known.store.absorb(TRAINING_RUNS, a_run(version=5, status={"phase": "Pending"}))
    known.store.absorb(JOBS, child("walk-a1", 6))
    assert names(known) == ["walk-a1"]
    known.store.put(TRAINING_RUNS, a_run(version=5, status={"phase": "Pending"}))
    known.store.put(JOBS, child("walk-a1", 6))
    assert known.told() == []


STALE = [
    (TRAINING_RUNS, a_run(version=4, status={"phase": "Old"})),
    (TRAINING_RUNS, a_run(version=5, status={"phase": "Old"})),
]


@pytest.mark.parametrize(("resource", "obj"), STALE)
def test_an_older_state_never_replaces_a_newer_one(
    known: Known, resource: Resource, obj: Object
) -> None:
    known.store.put(TRAINING_RUNS, a_run(version=5, status={"phase": "New"}))
    known.told()
    known.store.put(resource, obj)
    known.store.delete(resource, a_run(version=4))
    assert known.told() == []
    assert known.store.phases() == {"New": 1}


def test_what_was_deleted_does_not_come_back_by_a_list_from_before(known: Known) -> None:
    store = known.store
    store.put(JOBS, child("walk-a1", 3))
    store.delete(JOBS, child("walk-a1", 7))
    store.put(JOBS, child("walk-a1", 3))
    store.put(JOBS, child("walk-a1", 7))
    assert names(known) == []
    store.put(JOBS, child("walk-a1", 8))
    assert names(known) == ["walk-a1"], "an object of the same name that was made since"


def test_a_run_that_was_deleted_and_made_again_starts_afresh(known: Known) -> None:
    store = known.store
    store.note_foreign(WALK, foreign("x"))
    store.note_refused(WALK, RefusedChild(ChildKind.JOB, "x", "no"))
    store.put(TRAINING_RUNS, a_run(version=9, uid="another"))
    assert known.told() == [WALK]
    observed = store.observed(WALK)
    assert observed is not None
    assert (observed.foreign, observed.refused) == ((), None)
    store.delete(TRAINING_RUNS, a_run(version=8))
    assert WALK in store


def test_a_deletion_is_told(known: Known) -> None:
    store = known.store
    store.put(JOBS, child("walk-a1"))
    known.told()
    store.delete(JOBS, child("walk-a1", 2))
    store.delete(JOBS, child("never-seen", 2))
    assert known.told() == [WALK]
    store.delete(TRAINING_RUNS, a_run(version=2))
    assert known.told() == [WALK]
    assert (len(store), list(store.runs()), store.observed(WALK)) == (0, [], None)


def test_a_label_that_moves_moves_the_child(known: Known) -> None:
    known.store.put(JOBS, child("j", 1))
    known.told()
    known.store.put(JOBS, child("j", 2, run="other"))
    assert known.told() == [WALK, RunKey("team", "other")]
    known.store.put(JOBS, child("j", 3, run=None))
    assert known.told() == [RunKey("team", "other")]
    assert names(known) == []
    assert not known.store._around


def test_a_sweep_takes_what_a_list_did_not_show_and_nothing_newer(known: Known) -> None:
    store = known.store
    for name, version in (("seen", 3), ("gone", 4), ("newer", 12)):
        store.put(JOBS, child(name, version))
    elsewhere = child("far", 2)
    elsewhere["metadata"]["namespace"] = "elsewhere"
    store.put(JOBS, elsewhere)
    known.told()
    store.sweep(JOBS, "team", {("team", "seen")}, "10")
    assert names(known) == ["newer", "seen"]
    assert known.told() == [WALK]
    assert len(store._children[JOBS]) == 3
    store.put(JOBS, child("gone", 4))
    assert names(known) == ["newer", "seen"]
    store.sweep(JOBS, None, set(), "20")
    assert not store._children[JOBS]


def test_after_a_restore_anything_may_follow(known: Known) -> None:
    store = known.store
    store.put(JOBS, child("walk-a1", 500, status={"active": 1}))
    store.delete(JOBS, child("walk-a2", 600))
    store.rewind()
    store.put(JOBS, child("walk-a1", 20, status={"active": 0}))
    store.put(JOBS, child("walk-a2", 30))
    observed = store.observed(WALK)
    assert observed is not None
    assert [job.active for job in observed.jobs] == [0, 0]


def test_versions_that_are_no_numbers_are_taken_as_they_come(known: Known) -> None:
    for version, phase in (("b", "One"), ("a", "Two")):
        obj = a_run(status={"phase": phase})
        obj["metadata"]["resourceVersion"] = version
        known.store.put(TRAINING_RUNS, obj)
        assert known.store.phases() == {phase: 1}


def foreign(name: str) -> ForeignObject:
    return ForeignObject(ChildKind.SERVICE, name, datetime(2026, 3, 1, tzinfo=UTC))


def test_taken_names_are_remembered_until_they_are_ours(known: Known) -> None:
    store = known.store
    store.note_foreign(WALK, foreign("a"))
    store.note_foreign(WALK, foreign("b"))
    store.note_foreign(WALK, foreign("a"))
    store.note_made(WALK, ChildKind.SERVICE, "b")
    store.note_made(WALK, ChildKind.JOB, "a")
    store.note_foreign(RunKey("team", "unknown"), foreign("a"))
    store.note_made(RunKey("team", "unknown"), ChildKind.SERVICE, "a")
    observed = store.observed(WALK)
    assert observed is not None
    assert observed.foreign == (foreign("a"),)


def test_a_refusal_is_remembered_until_that_child_is_made(known: Known) -> None:
    store, refused = known.store, RefusedChild(ChildKind.JOB, "walk-a1", "exceeded quota")

    def seen() -> RefusedChild | None:
        observed = store.observed(WALK)
        assert observed is not None
        return observed.refused

    store.note_refused(RunKey("team", "unknown"), refused)
    store.note_refused(WALK, refused)
    store.note_made(WALK, ChildKind.SERVICE, "walk-a1")
    assert seen() == refused
    store.note_made(WALK, ChildKind.JOB, "walk-a1")
    assert seen() is None


def test_events_of_a_run_are_bounded(known: Known) -> None:
    known.store.put(JOBS, child("walk-a1"))
    for version in range(1, 3 * EVENTS_OF_A_RUN):
        known.store.put(EVENTS, event(f"e{version}", version, message=str(version)))
    observed = known.store.observed(WALK)
    assert observed is not None
    kept = {int(e.message) for e in observed.job_events}
    assert kept == set(range(2 * EVENTS_OF_A_RUN, 3 * EVENTS_OF_A_RUN))
    assert len(known.store._children[EVENTS]) == EVENTS_OF_A_RUN


def test_a_child_that_cannot_be_read_is_left_out(known: Known) -> None:
    known.store.put(CONFIG_MAPS, child("odd", data={"run.json": "\ud800"}))
    assert names(known, "config_maps") == []
    known.store.put(CONFIG_MAPS, child("odd", 2, data={"run.json": "{}"}))
    assert names(known, "config_maps") == ["odd"]


def test_a_run_of_many_levels_is_refused_and_harms_nobody(known: Known) -> None:
    deep: Object = {}
    for _ in range(9_000):
        deep = {"a": deep}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(12_500)  # as a `Cluster` does
    try:
        spec = {**a_run()["spec"], "training": {"x": deep}}
        known.store.put(TRAINING_RUNS, a_run(version=2) | {"spec": spec})
        observed = known.store.observed(WALK)
        assert observed is not None
        assert [v.path for v in observed.run.refusals] == ["training.x"]
        while deep:
            deep = deep["a"]  # level by level: the end of a deep object recurses, too
    finally:
        sys.setrecursionlimit(limit)


def test_phases_and_objects(known: Known) -> None:
    known.store.put(TRAINING_RUNS, a_run("b", status={"phase": "Running"}))
    known.store.put(TRAINING_RUNS, a_run("c", status={"phase": "Running"}))
    assert known.store.phases() == {"": 1, "Running": 2}
    assert len(known.store) == 3


def changes() -> st.SearchStrategy[list[tuple[int, int, bool]]]:
    return st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), max_size=30)


@given(changes(), st.randoms(use_true_random=False))
def test_news_in_any_order_ends_in_the_newest_state(
    history: list[tuple[int, int, bool]], random: Any
) -> None:
    """Each change comes at least once, some twice, all of them shuffled."""
    store = Store()
    final: dict[str, int] = {}
    news = []
    for version, (number, run, gone) in enumerate(history, start=1):
        name = f"j{number}"
        if gone:
            final.pop(name, None)
        else:
            final[name] = version
        news.append((gone, child(name, version, f"r{run}", status={"active": version})))
    news += random.sample(news, len(news) // 2)
    random.shuffle(news)
    for gone, obj in news:
        (store.delete if gone else store.put)(JOBS, obj)
    found = {view.meta.name: view.active for run in range(3) for view in _jobs(store, f"r{run}")}
    assert found == final
    assert sum(map(len, store._around.values())) == len(final)


def _jobs(store: Store, run: str) -> tuple[Any, ...]:
    store.put(TRAINING_RUNS, a_run(run))
    observed = store.observed(RunKey("team", run))
    assert observed is not None
    return observed.jobs


def test_a_store_of_four_thousand_runs_is_small(known: Known) -> None:
    import tracemalloc  # noqa: PLC0415 - slows down everything else

    def objects(number: int) -> None:
        name = f"run-{number:05d}"
        known.store.put(TRAINING_RUNS, json.loads(json.dumps(a_run(name, uid="u" * 36))))
        for resource, suffix in ((JOBS, ""), (PODS, "-0-abcde"), (CONFIG_MAPS, "")):
            obj = child(f"{name}-a1{suffix}", run=name, spec={"filling": ["x" * 99] * 99})
            known.store.put(resource, json.loads(json.dumps(obj)))

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(400):
            objects(number)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / 400 < 12_000, f"{taken / 400:.0f} bytes a run"
