"""Random events in random order against the engine, over a cluster that may lie and lag."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from fake_cluster import Answer, FakeCluster, Object, WriteError, controller
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from drivetrain_api import labels
from drivetrain_api.digest import PROGRESS_LIMIT, Digest, encode
from drivetrain_api.status import Progress, TrainingRunStatus, phase_of

KEPT_AFTER_TTL = {"PersistentVolumeClaim"}
CODES = st.sampled_from([0, 0, 0, 1, 2, 3, 75, 137])
ANSWERS = st.lists(
    st.sampled_from([Answer.OK, Answer.OK, Answer.OK, Answer.LOST, Answer.TIMEOUT]), max_size=10
)


def then_ok(answers: list[Answer]) -> Iterator[Answer]:
    yield from answers
    while True:
        yield Answer.OK


class RunMachine(RuleBasedStateMachine):
    """Every rule is one thing that may happen to a run; every invariant must always hold."""

    cluster: FakeCluster

    @initialize(
        nodes=st.integers(1, 2),
        max_restarts=st.integers(0, 2),
        backoff=st.sampled_from([0, 10]),
        pending=st.sampled_from([None, 60]),
        active=st.sampled_from([None, 100]),
        ttl=st.sampled_from([None, 0, 100]),
        queue=st.booleans(),
        size=st.booleans(),
    )
    def begin(  # noqa: PLR0917 - hypothesis passes what it drew by keyword
        self,
        nodes: int,
        max_restarts: int,
        backoff: int,
        pending: int | None,
        active: int | None,
        ttl: int | None,
        queue: bool,
        size: bool,
    ) -> None:
        spec: dict[str, Any] = {
            "topology": {"nodes": nodes},
            "restart": {"maxRestarts": max_restarts, "backoffSeconds": backoff, "stallSeconds": 60},
            "deadlines": {"pendingSeconds": pending, "activeSeconds": active},
            "gracePeriodSeconds": 20,
            "ttlSecondsAfterFinished": ttl,
            "storage": {"size": "1Gi"} if size else {},
        }
        if queue:
            spec["queueName"] = "lab-queue"
        self.max_restarts = max_restarts
        self.cluster = FakeCluster(**spec)

    # --- the operator ------------------------------------------------------------------

    @rule()
    def watches_catch_up(self) -> None:
        self.cluster.sync()

    @rule()
    def the_run_watch_alone_catches_up(self) -> None:
        self.cluster.sync_run()

    @rule(answers=ANSWERS, fresh=st.booleans())
    def the_operator_works(self, answers: list[Answer], fresh: bool) -> None:
        if fresh:
            self.cluster.sync()
        try:
            self.cluster.apply(self.cluster.decide(), then_ok(answers))
        except WriteError:
            return

    @rule()
    def the_operator_works_undisturbed(self) -> None:
        """Until nothing is left to do: `settle` asserts that the decision is a fixed point."""
        try:
            self.cluster.settle()
        except WriteError as error:
            assert "foreign" in str(error)  # noqa: PT017 - the only write that may fail here

    @rule(resumes=st.booleans())
    def a_suspension_is_seen_before_anything_else_is(self, resumes: bool) -> None:
        """The run's watch is ahead of all others, by a suspension and a resumption."""
        for suspend in (True, False)[: 1 + resumes]:
            self.cluster.edit(suspend=suspend)
            for _ in range(2):
                self.cluster.sync_run()
                self.the_operator_works([], fresh=False)

    @rule(minutes=st.integers(0, 1))
    def all_goes_well_for_a_while(self, minutes: int) -> None:
        self.cluster.later(60 * minutes)
        self.the_operator_works_undisturbed()
        self.kueue_admits()
        self.pods_start()
        self.the_operator_works_undisturbed()

    @rule(
        how=st.sampled_from(["evicted", "lost", "OOMKilled", 1, 1, 2, 75, 137]),
        index=st.integers(0, 1),
        wait=st.sampled_from([0, 20, 100]),
    )
    def an_attempt_comes_to_an_end(self, how: str | int, index: int, wait: int) -> None:
        self.all_goes_well_for_a_while(1)
        for pod in self._pick(self._running(), index):
            if how == "evicted":
                self.cluster.disrupt(pod)
            elif how == "lost":
                self.cluster.lost_nodes.add(pod["spec"]["nodeName"])
                self.cluster.disrupt(pod, "DeletionByTaintManager")
            else:
                code, reason = (137, how) if isinstance(how, str) else (how, "")
                self.cluster.finish(pod, code, reason)
        self.cluster.job_controller()
        self.the_operator_works_undisturbed()
        self.cluster.garbage_collector()
        self.cluster.reap()
        self.cluster.later(wait)
        self.the_operator_works_undisturbed()

    # --- the user ----------------------------------------------------------------------

    @rule()
    def suspend_is_toggled(self) -> None:
        self.cluster.edit(suspend=not self.cluster.run["spec"].get("suspend", False))

    @rule(seed=st.sampled_from([1, 2, 3, "wrong"]))
    def the_spec_is_edited(self, seed: int | str) -> None:
        self.cluster.edit(seed=seed)

    @precondition(lambda self: self.cluster.jobs and self.cluster.status.attempt > 1)
    @rule()
    def a_job_is_deleted_by_hand(self) -> None:
        for job in self.cluster.jobs[:1]:
            del self.cluster.objects["Job", job["metadata"]["name"]]

    @precondition(lambda self: self._running())
    @rule(index=st.integers(0, 1))
    def a_pod_is_deleted_by_hand(self, index: int) -> None:
        for pod in self._pick(self._running(), index):
            self.cluster.terminate(pod)

    @rule(kind=st.sampled_from(["Job", "Service", "ConfigMap"]))
    def somebody_takes_the_next_name(self, kind: str) -> None:
        """With all our labels: only the owner tells that it is not ours."""
        number = self.cluster.status.attempt + 1
        name = f"walk-a{number}"
        marks = {labels.RUN_UID: self.cluster.uid, labels.ATTEMPT: str(number)}
        owners = [{"kind": "TrainingRun", "uid": "another", "controller": True}]
        foreign: Object = {
            "kind": kind,
            "metadata": {
                "name": name,
                "uid": "foreign",
                "labels": marks,
                "ownerReferences": owners,
            },
        }
        self.cluster.objects.setdefault((kind, name), foreign)

    @precondition(lambda self: self._foreign())
    @rule()
    def the_taken_names_are_freed(self) -> None:
        for key in self._foreign():
            del self.cluster.objects[key]

    # --- the cluster -------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 5, 30, 100, 700]))
    def time_passes(self, seconds: int) -> None:
        self.cluster.later(seconds)

    @precondition(lambda self: self.cluster.jobs)
    @rule()
    def the_job_controller_works(self) -> None:
        self.cluster.job_controller()

    @precondition(lambda self: self.cluster.pods)
    @rule()
    def the_garbage_collector_works(self) -> None:
        self.cluster.garbage_collector()

    @precondition(lambda self: self._terminating())
    @rule()
    def terminating_pods_end(self) -> None:
        self.cluster.reap()

    @precondition(lambda self: self.cluster.jobs)
    @rule()
    def pods_start(self) -> None:
        self.cluster.job_controller()
        for pod in self.cluster.live_pods:
            self.cluster.start(pod, f"node-{pod['metadata']['labels'][labels.ATTEMPT]}")

    @precondition(lambda self: self._running())
    @rule(index=st.integers(0, 1), code=CODES, oom=st.booleans(), noticed=st.booleans())
    def a_container_ends(self, index: int, code: int, oom: bool, noticed: bool) -> None:
        for pod in self._pick(self._running(), index):
            if not self.cluster.on_lost_node(pod):
                self.cluster.finish(pod, code, "OOMKilled" if oom else "")
        if noticed:
            self.cluster.job_controller()
            self.the_operator_works_undisturbed()

    @precondition(lambda self: self._running())
    @rule(index=st.integers(0, 1))
    def a_pod_is_evicted(self, index: int) -> None:
        for pod in self._pick(self._running(), index):
            self.cluster.disrupt(pod)

    @precondition(lambda self: self._running())
    @rule(index=st.integers(0, 1))
    def a_node_is_lost(self, index: int) -> None:
        for pod in self._pick(self._running(), index):
            self.cluster.lost_nodes.add(pod["spec"]["nodeName"])
            self.cluster.disrupt(pod, "DeletionByTaintManager")

    @precondition(lambda self: self._queued(held=True))
    @rule()
    def kueue_admits(self) -> None:
        for job in self._queued(held=True):
            job["spec"]["suspend"] = False

    @precondition(lambda self: self._queued(held=False))
    @rule()
    def kueue_evicts(self) -> None:
        for job in self._queued(held=False):
            job["spec"]["suspend"] = True

    @precondition(lambda self: self._running())
    @rule(
        behind=st.sampled_from([-1, 0, 0, 0, 1]),
        env_steps=st.integers(0, 10**6),
        checkpoint=st.none() | st.integers(0, 10**6),
    )
    def the_trainer_reports(self, behind: int, env_steps: int, checkpoint: int | None) -> None:
        attempt = max(self.cluster.status.attempt - behind, 0)
        progress = Progress(env_steps=env_steps, checkpoint_env_steps=checkpoint)
        self.cluster.report(encode(Digest(attempt=attempt, progress=progress), PROGRESS_LIMIT))

    @precondition(lambda self: len(self.cluster.statuses) > 12)
    @rule()
    def the_run_is_deleted(self) -> None:
        self.cluster.run["metadata"]["deletionTimestamp"] = "2026-03-01T13:00:00Z"

    def _running(self) -> list[Object]:
        return [p for p in self.cluster.pods if p["status"]["phase"] == "Running"]

    def _terminating(self) -> list[Object]:
        return [p for p in self.cluster.pods if "deletionTimestamp" in p["metadata"]]

    def _queued(self, *, held: bool) -> list[Object]:
        return [job for job in self.cluster.jobs if job["spec"].get("suspend") is held]

    def _foreign(self) -> list[tuple[str, str]]:
        found = self.cluster.objects.items()
        return [key for key, obj in found if obj["metadata"]["uid"] == "foreign"]

    def _pick(self, objects: list[Object], index: int) -> list[Object]:
        return objects[index : index + 1]

    # --- what always holds -------------------------------------------------------------

    @invariant()
    def never_two_attempts_with_live_pods(self) -> None:
        attempts = {p["metadata"]["labels"][labels.ATTEMPT] for p in self.cluster.live_pods}
        assert len(attempts) <= 1, attempts
        assert len(self.cluster.jobs) <= 1, [job["metadata"]["name"] for job in self.cluster.jobs]

    @invariant()
    def every_child_is_owned_and_of_a_known_attempt(self) -> None:
        for (kind, name), obj in self.cluster.objects.items():
            if obj["metadata"]["uid"] == "foreign":
                continue
            owner = controller(obj)
            if kind == "Pod":
                assert owner["kind"] == "Job"
            else:
                assert owner["uid"] == self.cluster.uid, name
            number = obj["metadata"]["labels"].get(labels.ATTEMPT)
            assert number is None or int(number) <= self.cluster.status.attempt

    @invariant()
    def foreign_objects_are_left_alone(self) -> None:
        for obj in self.cluster.objects.values():
            if obj["metadata"]["uid"] == "foreign":
                assert set(obj) == {"kind", "metadata"}

    @invariant()
    def statuses_follow_from_one_another(self) -> None:
        for before, after in pairwise(self.cluster.statuses[-3:]):
            assert after.attempt - before.attempt in (0, 1)
            assert after.restarts - before.restarts in (0, 1)
            assert after.disruptions - before.disruptions in (0, 1)
            assert after.active_seconds >= before.active_seconds
            assert len({c.type for c in after.conditions}) == len(after.conditions)
            assert after.phase is phase_of(after)
            if phase_of(before).terminal:
                assert phase_of(after) is phase_of(before)
                assert (after.finished_at, after.history) == (before.finished_at, before.history)

    @invariant()
    def restarts_are_exact_and_bounded(self) -> None:
        status = self.cluster.status
        assert status.restarts <= self.max_restarts
        suspensions = len({r.attempt for r in self._records() if r.reason == "SuspendedBySpec"})
        over = bool(status.history) and status.history[-1].attempt == status.attempt
        ended = status.attempt - (0 if over else 1) if status.attempt else 0
        if not phase_of(status).terminal:
            assert status.restarts + status.disruptions + suspensions == ended

    def _records(self) -> Iterator[Any]:
        for status in self.cluster.statuses:
            yield from status.history

    # --- how it ends -------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        if self.cluster.run_gone:
            self._gone()
            return
        self.the_taken_names_are_freed()
        self.cluster.edit(seed=1)
        self._fair_play()
        status = self.cluster.status
        if self.cluster.run["spec"].get("suspend") and not phase_of(status).terminal:
            assert status.phase == "Suspended", status
            self.cluster.clear()
            assert not self.cluster.jobs
            assert not self.cluster.pods
            self.cluster.edit(suspend=False)
            self._fair_play()
        assert phase_of(self.cluster.status).terminal, self.cluster.status
        for _ in range(3):
            self.cluster.later(30)
            self.cluster.clear()
        assert not self.cluster.live_pods
        self._after_ttl()

    def _gone(self) -> None:
        """Owner references do the whole work; the operator keeps out of it."""
        self.the_taken_names_are_freed()
        self.cluster.lost_nodes.clear()
        for _ in range(3):
            self.cluster.sync()
            decision = self.cluster.decide()
            assert not decision.actions
            assert decision.status == TrainingRunStatus.model_validate(
                self.cluster.run.get("status", {})
            )
            self.cluster.garbage_collector()
            self.cluster.reap()
        assert not self.cluster.objects

    def _fair_play(self) -> None:
        """Nothing goes wrong any more: the run must come to an end, or to rest."""
        for _ in range(60):
            self.cluster.settle()
            resting = self.cluster.run["spec"].get("suspend") and (
                self.cluster.status.phase == "Suspended"
            )
            if phase_of(self.cluster.status).terminal or resting:
                return
            self.kueue_admits()
            self.cluster.job_controller()
            for pod in self.cluster.live_pods:
                self.cluster.start(pod, "node-fair")
            self.cluster.settle()
            for pod in self.cluster.live_pods:
                if (
                    not self.cluster.on_lost_node(pod)
                    and "deletionTimestamp" not in pod["metadata"]
                ):
                    self.cluster.finish(pod, 0)
            self.cluster.job_controller()
            self.cluster.garbage_collector()
            self.cluster.reap()
            self.cluster.job_controller()
            self.cluster.later(15)

    def _after_ttl(self) -> None:
        self.cluster.edit(ttlSecondsAfterFinished=30)
        for _ in range(3):
            self.cluster.later(60)
            self.cluster.clear()
        kinds = {kind for kind, _ in self.cluster.objects}
        assert kinds <= KEPT_AFTER_TTL, kinds


TestRunMachine = RunMachine.TestCase
TestRunMachine.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class TestRunMachineAtLength(RunMachine.TestCase):
    """The same with more and longer stories."""

    settings = settings(max_examples=3000, stateful_step_count=80, deadline=None)
    pytestmark = pytest.mark.nightly
