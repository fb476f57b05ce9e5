from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog

from drivetrain_api.digest import Digest
from drivetrain_api.errors import Violation
from drivetrain_api.status import Phase, Progress, TrainingRunStatus
from drivetrain_operator.cluster.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ThrottledError,
)
from drivetrain_operator.cluster.keys import RunKey
from drivetrain_operator.cluster.status_writer import wire
from drivetrain_operator.manifests.kinds import ChildKind
from drivetrain_operator.reconcile.decision import Create, Decision
from drivetrain_operator.reconcile.snapshot import ForeignObject, Observed, RunView
from drivetrain_operator.reconcile.views import ConfigMapView, JobView, PodView
from drivetrain_operator.wiring.controller import Controller, Ports
from drivetrain_operator.wiring.echoes import Echoes
from drivetrain_operator.wiring.metrics import Metrics

WALK = RunKey("lab", "walk")
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def run_object(name: str = "walk", status: TrainingRunStatus | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "drivetrain.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {
            "name": name,
            "namespace": "lab",
            "uid": f"uid-{name}",
            "generation": 1,
            "resourceVersion": "1",
            "creationTimestamp": "2026-03-01T12:00:00Z",
        },
        "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}},
        "status": wire(status) if status is not None else {},
    }


@dataclass
class World:
    """The neighbours of a controller: a store, an applier, a clock."""

    runs: dict[RunKey, Observed] = field(default_factory=dict)
    applied: list[tuple[str, Decision]] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)
    broken_actions: list[Exception] = field(default_factory=list)
    refusals: tuple[Violation, ...] = ()
    inspected: list[str] = field(default_factory=list)
    leading: bool = True
    now: datetime = NOW
    metrics: Metrics = field(default_factory=Metrics)
    echoes: Echoes = field(default_factory=Echoes)
    gate: asyncio.Event | None = None
    foreign: ForeignObject | None = None
    version: int = 1

    def observed(self, key: RunKey) -> Observed | None:
        return self.runs.get(key)

    async def inspect(self, run: RunView) -> RunView:
        self.inspected.append(run.metadata.name)
        return replace(run, refusals=(*run.refusals, *self.refusals))

    async def apply(
        self, run: RunView, decision: Decision, written: Callable[[Any], None]
    ) -> ForeignObject | None:
        if self.gate is not None:
            await self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)
        self.applied.append((run.metadata.name, decision))
        if not decision.fenced and decision.status == run.status:
            return None
        self.version += 1
        metadata = run.metadata.model_copy(update={"resource_version": str(self.version)})
        self.runs[WALK] = replace(
            self.runs[WALK], run=replace(run, metadata=metadata, status=decision.status)
        )
        foreign, self.foreign = self.foreign, None
        if decision.fenced and foreign is None:
            self.runs[WALK] = replace(self.runs[WALK], jobs=(JOB,))
        written({"metadata": {"resourceVersion": str(self.version)}})
        if self.broken_actions:
            raise self.broken_actions.pop(0)
        return foreign

    def controller(self, interval_s: float = 10.0) -> Controller:
        ports = Ports(
            runs=self,
            applier=self,
            inspect=self.inspect,
            echoes=self.echoes,
            metrics=self.metrics,
            leading=lambda: self.leading,
            now=lambda: self.now,
        )
        return Controller(ports, interval=timedelta(seconds=interval_s))

    def put(
        self,
        status: TrainingRunStatus | None = None,
        *,
        deadlines: dict[str, int] | None = None,
        **around: Any,
    ) -> None:
        made = run_object(status=status)
        if deadlines is not None:
            made["spec"]["deadlines"] = deadlines
        self.runs[WALK] = Observed(RunView.from_object(made), **around)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


async def reached(check: Callable[[], bool]) -> None:
    """Let the loop go on until something holds."""
    async with asyncio.timeout(5):
        while not check():  # noqa: ASYNC110 - the controller under test tells nobody
            await asyncio.sleep(0)


async def idle(controller: Controller) -> None:
    """Let the workers do all that is due."""
    await reached(lambda: not len(controller.queue) and not controller.queue.working)


async def drive(controller: Controller, until: Callable[[], bool] | None = None) -> None:
    """Run one worker until nothing is due (or `until` holds), then close the queue."""
    worker = asyncio.create_task(controller.work())
    await (reached(until) if until is not None else idle(controller))
    controller.queue.close()
    await worker


def passes(world: World, *, interval_s: float = 10.0) -> Controller:
    """The controller after all that is due for the run was done."""

    async def go() -> Controller:
        controller = world.controller(interval_s)
        controller.queue.add(WALK)
        await drive(controller)
        return controller

    return asyncio.run(go())


JOB = JobView.from_object(
    {
        "metadata": {
            "name": "walk-a1",
            "uid": "job-1",
            "labels": {"drivetrain.dev/run": "walk", "drivetrain.dev/attempt": "1"},
            "ownerReferences": [
                {"controller": True, "kind": "TrainingRun", "name": "walk", "uid": "uid-walk"}
            ],
        },
        "status": {"active": 1},
    }
)
POD = PodView.from_object(
    {
        "metadata": {
            "name": "walk-a1-0",
            "uid": "pod-1",
            "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
            "labels": {
                "drivetrain.dev/run": "walk",
                "drivetrain.dev/run-uid": "uid-walk",
                "drivetrain.dev/attempt": "1",
            },
            "ownerReferences": [
                {"controller": True, "kind": "Job", "name": "walk-a1", "uid": "job-1"}
            ],
        },
        "spec": {"nodeName": "node"},
        "status": {"phase": "Running"},
    }
)


def progress_map(env_steps: int) -> ConfigMapView:
    digest = Digest(attempt=1, progress=Progress(iteration=1, env_steps=env_steps))
    content = digest.model_dump(mode="json", by_alias=True, exclude_none=True)
    return ConfigMapView.from_object(
        {
            "metadata": {
                "name": "walk-progress",
                "ownerReferences": [{"controller": True, "uid": "uid-walk"}],
            },
            "data": {"progress": json.dumps(content)},
        }
    )


def running(world: World, env_steps: int) -> None:
    """The run with its Job and pod; what was written before is kept."""
    known = world.runs.get(WALK)
    around: dict[str, Any] = {"jobs": (JOB,), "pods": (POD,)}
    around["config_maps"] = (progress_map(env_steps),)
    if known is None:
        world.put(TrainingRunStatus(attempt=1, attempt_started_at=NOW), **around)
    else:
        world.runs[WALK] = replace(known, **around)


def test_a_new_run_is_begun_and_looked_at_again() -> None:
    """What was made is in the next snapshot, of which no watch need tell."""
    world = World()
    world.put()
    first_jobs: list[int] = []

    async def go() -> None:
        controller = world.controller()
        controller.queue.add(WALK)
        await drive(controller, lambda: len(world.applied) >= 2)
        first_jobs.append(len(world.applied))

    asyncio.run(go())
    name, decision = world.applied[0]
    assert name == "walk"
    assert decision.fenced
    assert decision.status.attempt == 1
    kinds = [action.kind for action in decision.actions if isinstance(action, Create)]
    assert kinds[-1] is ChildKind.JOB
    assert first_jobs[0] >= 2


def test_a_run_that_is_gone_is_forgotten() -> None:
    world = World()
    world.echoes.expect(WALK, "9")
    controller = passes(world)
    assert world.applied == []
    assert world.echoes.silence() == 0.0
    assert controller.queue.failures(WALK) == 0


def test_the_servers_refusals_are_the_runs() -> None:
    world = World(refusals=(Violation("podTemplate.spec", "unknown field"),))
    world.put()
    passes(world)
    _, decision = world.applied[0]
    accepted = decision.status.conditions[0]
    assert "podTemplate.spec" in accepted.message
    assert decision.actions == ()


def test_an_action_that_fails_loses_nothing_of_what_was_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The echo is owed, the write counted, the transition told."""
    world = World(broken_actions=[ConflictError("a race")])
    world.put()
    controller = passes(world)
    assert controller.queue.failures(WALK) == 1
    assert world.echoes._owed[WALK][0] == "2"
    assert world.metric("drivetrain_status_writes_total") == 1
    assert "attempt 1 begins" in capsys.readouterr().out


def test_a_deadline_does_not_wait_for_the_back_off() -> None:
    world = World(faults=[ForbiddenError("no")] * 9)
    world.put(deadlines={"pendingSeconds": 7})
    due: list[float] = []

    async def go() -> None:
        controller = world.controller()
        for _ in range(8):
            controller.queue.retry(WALK)
        controller.queue.add(WALK)

        def failed() -> bool:
            if controller.queue.failures(WALK) < 9:
                return False
            due.append(controller.queue._delayed[WALK].due - asyncio.get_running_loop().time())
            return True

        await drive(controller, failed)

    asyncio.run(go())
    assert 0.0 < due[0] <= 7.0


def test_what_was_written_must_come_back() -> None:
    world = World(refusals=(Violation("spec", "no"),))
    world.put()
    passes(world)
    world.echoes.seen(WALK, "1")
    assert world.echoes._owed[WALK][0] == "2"
    assert world.metric("drivetrain_status_writes_total") == 1


def test_an_unchanged_status_owes_nothing() -> None:
    """A write that only fences moves no version: no event comes of it."""
    world = World()
    running(world, 10)
    passes(world)
    world.echoes.gone(WALK)
    writes = world.metric("drivetrain_status_writes_total")
    passes(world)
    assert world.echoes.silence() == 0.0
    assert world.metric("drivetrain_status_writes_total") == writes


def test_newer_figures_wait_for_the_interval() -> None:
    world = World()
    running(world, 10)

    async def go() -> None:
        controller = world.controller(10.0)
        worker = asyncio.create_task(controller.work())

        async def look(env_steps: int, seconds: float) -> int:
            world.now = NOW + timedelta(seconds=seconds)
            running(world, env_steps)
            controller.queue.add(WALK)
            await idle(controller)
            progress = world.runs[WALK].run.status.progress
            assert progress is not None
            return progress.env_steps

        assert await look(10, 0) == 10
        assert await look(20, 3) == 10
        assert controller.queue.delayed == 1
        assert await look(30, 9.9) == 10
        assert await look(40, 10) == 40
        assert await look(50, 12) == 40
        assert await look(50, 20) == 50
        controller.queue.close()
        await worker

    asyncio.run(go())
    assert world.metric("drivetrain_status_writes_held_total") == 3


@pytest.mark.parametrize(
    ("error", "reason", "level"),
    [
        (ConflictError("stale", status=409, reason="Conflict"), "Conflict", "debug"),
        (NotFoundError("gone", status=404, reason="NotFound"), "NotFound", "debug"),
        (ForbiddenError("no", status=403, reason="Forbidden"), "Forbidden", "warning"),
        (ForbiddenError("no"), "ForbiddenError", "warning"),
        (ZeroDivisionError("a bug"), "Internal", "error"),
    ],
)
def test_a_failed_pass_is_tried_again_later(error: Exception, reason: str, level: str) -> None:
    world = World(faults=[error])
    world.put()
    with structlog.testing.capture_logs() as logs:
        controller = passes(world)
    assert world.applied == []
    assert controller.queue.failures(WALK) == 1
    assert world.metric("drivetrain_reconcile_failures_total", reason=reason) == 1
    told = [line for line in logs if line["event"] == "a pass failed"]
    assert [line["log_level"] for line in told] == [level]
    assert (told[0]["namespace"], told[0]["run"]) == WALK
    assert told[0]["retry_seconds"] == 0.5


def test_a_success_takes_failures_for_over() -> None:
    world = World(faults=[ForbiddenError("no")])
    world.put()

    async def go() -> int:
        controller = world.controller()
        controller.queue.add(WALK)
        await drive(controller)
        controller = world.controller()
        controller.queue.retry(WALK)
        controller.queue.add(WALK)
        await drive(controller, lambda: bool(world.applied))
        return controller.queue.failures(WALK)

    assert asyncio.run(go()) == 0


def test_a_busy_server_gives_the_worker_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds:
            slept.append(seconds)
        await sleep(0)

    world = World(
        faults=[
            ThrottledError("busy", retry_after=3.0),
            ThrottledError("busy", retry_after=900.0),
        ]
    )
    world.put()
    monkeypatch.setattr("drivetrain_operator.wiring.controller.asyncio.sleep", note)
    passes(world)
    passes(world)
    assert slept == [3.0, 10.0]


def test_a_status_that_cannot_be_read_hinders_no_other_run() -> None:
    world = World()
    world.put()

    async def go() -> None:
        controller = world.controller()
        odd = RunKey("lab", "odd")
        observe = world.observed

        def observed(key: RunKey) -> Observed | None:
            if key == odd:
                raise ValueError("not a status")
            return observe(key)

        world.observed = observed  # type: ignore[method-assign]  # one run of it is odd
        controller.queue.add(odd)
        controller.queue.add(WALK)
        await drive(controller, lambda: bool(world.applied))
        assert controller.queue.failures(odd) == 1

    asyncio.run(go())


def test_nothing_is_written_without_the_lease() -> None:
    world = World(leading=False)
    world.put()
    controller = passes(world)
    assert world.applied == []
    assert controller.queue.failures(WALK) == 1, "it is tried again"


def test_a_name_that_is_taken_is_looked_at_again_at_once() -> None:
    world = World(foreign=ForeignObject(ChildKind.SERVICE, "walk-a1", NOW))
    world.put()

    async def go() -> None:
        controller = world.controller()
        controller.queue.add(WALK)
        await drive(controller, lambda: len(world.applied) >= 2)

    asyncio.run(go())
    assert len(world.applied) >= 2


def test_what_is_made_and_never_seen_is_not_made_without_a_pause() -> None:
    """As where a webhook takes our labels off the Job."""

    class Blind(World):
        async def apply(
            self, run: RunView, decision: Decision, written: Callable[[Any], None]
        ) -> ForeignObject | None:
            taken = await super().apply(run, decision, written)
            self.runs[WALK] = replace(self.runs[WALK], jobs=())
            return taken

    world = Blind()
    world.put()

    async def go() -> None:
        controller = world.controller()
        controller.queue.add(WALK)
        await drive(controller, lambda: controller.queue.delayed > 0)
        assert [decision.fenced for _, decision in world.applied] == [True, True]

    asyncio.run(go())


def test_restarts_are_counted_when_they_are_seen() -> None:
    """Also one whose write was not answered; what was there at the start is not counted."""
    world = World()
    ended = {
        "attempt": 1,
        "reason": "OOMKilled",
        "message": "",
        "counted": True,
        "endedAt": "2026-03-01T12:00:00Z",
    }

    async def go() -> None:
        controller = world.controller()
        worker = asyncio.create_task(controller.work())
        for restarts, disruptions in ((1, 0), (1, 0), (2, 1), (2, 1)):
            status = TrainingRunStatus.model_validate(
                {
                    "phase": "Failed",
                    "attempt": 3,
                    "restarts": restarts,
                    "disruptions": disruptions,
                    "history": [ended],
                    "observedGeneration": 1,
                }
            )
            world.put(status)
            controller.queue.add(WALK)
            await idle(controller)
        controller.queue.close()
        await worker

    asyncio.run(go())
    assert world.metric("drivetrain_restarts_total", reason="OOMKilled") == 2


def test_passes_in_work_end_when_the_queue_is_closed() -> None:
    async def go() -> None:
        world = World(gate=asyncio.Event())
        world.put()
        controller = world.controller()
        controller.queue.add(WALK)
        worker = asyncio.create_task(controller.work())
        await reached(lambda: bool(controller.queue.working))
        controller.queue.close()
        assert world.gate is not None
        world.gate.set()
        await asyncio.wait_for(worker, 5)
        assert len(world.applied) == 1

    asyncio.run(go())


def test_transitions_are_told_with_run_and_attempt() -> None:
    world = World()
    world.put()
    with structlog.testing.capture_logs() as logs:
        passes_until_applied(world)
    begun = next(line for line in logs if line.get("reason") == "AttemptStarted")
    assert (begun["namespace"], begun["run"], begun["attempt"]) == ("lab", "walk", 1)
    assert begun["event"] == "attempt 1 begins"
    made = next(line for line in logs if line["event"] == "applied")
    assert made["actions"][-1] == "Create Job walk-a1"


def passes_until_applied(world: World) -> None:
    async def go() -> None:
        controller = world.controller()
        controller.queue.add(WALK)
        await drive(controller, lambda: bool(world.applied))

    asyncio.run(go())


def test_phases_are_timed() -> None:
    world = World()
    running(world, 10)
    passes(world)
    name = "drivetrain_reconcile_seconds_count"
    for step in ("decide", "apply"):
        assert world.metric(name, phase=Phase.RUNNING.value, step=step) >= 1


def test_passes_that_wait_for_nothing_leave_the_loop_to_others() -> None:
    """The renewal of the Lease and the probes have their turn between any two of them."""

    async def go() -> int:
        controller = World().controller()
        for number in range(100):
            controller.queue.add(RunKey("lab", f"gone-{number}"))
        worker = asyncio.create_task(controller.work())
        turns = 0
        while len(controller.queue):
            await asyncio.sleep(0)
            turns += 1
        controller.queue.close()
        await worker
        return turns

    assert asyncio.run(go()) >= 100
