from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from drivetrain_api.status import ConditionType, Phase, Reason
from drivetrain_operator.local import executor
from drivetrain_operator.local.backend import LocalBackend
from drivetrain_operator.local.executor import LocalExecutor, PodFailure, utc_now
from drivetrain_operator.local.node import LocalNode, Place
from drivetrain_operator.local.processes import owned, sweep_until_clean
from drivetrain_operator.local.settings import LocalSettings

if TYPE_CHECKING:
    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.local.store import LocalStore
    from drivetrain_operator.reconcile.decision import EventRecord

MakeRun = Callable[..., "TrainingRun"]
SettingsFor = Callable[[str], LocalSettings]


class Listener:
    """A reporter that remembers, and may act on an event."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.failures: list[PodFailure] = []
        self.troubles: list[tuple[int | None, float]] = []
        self.on: dict[str, Callable[[], Any]] = {}

    def event(self, event: EventRecord) -> None:
        self.reasons.append(event.reason)
        self.on.get(event.reason, int)()

    def pod_failed(self, failure: PodFailure) -> None:
        self.failures.append(failure)

    def trouble(self, error: OSError, wait: float) -> None:
        self.troubles.append((error.errno, wait))


class Bench:
    """Applies a run and drives it, as `drivetrain run` does."""

    def __init__(self, store: LocalStore, storage: Path, settings_for: SettingsFor) -> None:
        self.store, self.storage, self.settings_for = store, storage, settings_for
        self.listener = Listener()
        self.executor: LocalExecutor
        self.node: LocalNode
        self.uid = ""

    def prepare(self, run: TrainingRun, plan: str) -> None:
        applied = self.store.apply(run, storage=self.storage, now=datetime.now(UTC))
        self.uid = applied.metadata.uid
        place = Place(self.store.folder("cheetah"), self.storage)
        self.node = LocalNode(
            place, run_uid=self.uid, gpu_resource="gpu", settings=self.settings_for(plan)
        )
        backend = LocalBackend(self.store, "cheetah", self.node, clock=utc_now)
        self.executor = LocalExecutor(self.store, "cheetah", backend, place, self.listener)

    def drive(self, run: TrainingRun, plan: str) -> TrainingRun:
        self.prepare(run, plan)
        return asyncio.run(asyncio.wait_for(self.executor.drive(), 20))

    def when_ready(self, act: Callable[[], Any]) -> None:
        """Have `act` called once the stand-in waits."""

        def look() -> None:
            loop = asyncio.get_running_loop()
            if list(self.store.folder("cheetah").glob("pods/*/volumes/scratch/ready")):
                act()
            else:
                loop.call_later(0.02, look)

        self.listener.on[Reason.PODS_RUNNING] = look


@pytest.fixture
def bench(store: LocalStore, storage: Path, settings_for: SettingsFor) -> Any:
    found = Bench(store, storage, settings_for)
    yield found
    left = list(owned(found.uid))
    sweep_until_clean(found.uid)
    assert left == []


def test_a_run_completes(bench: Bench, make_run: MakeRun) -> None:
    run = bench.drive(make_run(), "progress=1000+exit=0")
    status = run.status
    assert status.phase is Phase.COMPLETE
    assert (status.attempt, status.restarts) == (1, 0)
    assert status.progress is not None
    assert status.progress.env_steps == 1000
    assert status.is_true(ConditionType.CHECKPOINTED)
    assert bench.store.get("cheetah") == run
    assert bench.listener.reasons[0] == "AttemptStarted"
    assert bench.listener.reasons[-1] == "TrainingComplete"
    assert [e["reason"] for e in bench.store.events("cheetah")] == bench.listener.reasons


def test_a_crash_is_followed_by_another_attempt(bench: Bench, make_run: MakeRun) -> None:
    run = bench.drive(make_run(), "noise+die=SIGSEGV,exit=0")
    assert run.status.phase is Phase.COMPLETE
    assert (run.status.attempt, run.status.restarts) == (2, 1)
    assert run.status.history[0].exit_code == 139
    (failure,) = bench.listener.failures
    assert (failure.pod, failure.exit_code, failure.reason) == ("cheetah-a1-0", 139, "Error")
    assert failure.tail == "to standard error\n"
    assert failure.log.exists()


def test_time_goes_on_as_it_did_where_the_wall_clock_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class TomorrowsClock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(days=1)

    before = utc_now()
    monkeypatch.setattr(executor, "datetime", TomorrowsClock)
    assert timedelta(0) <= utc_now() - before < timedelta(hours=12)


def test_a_descriptor_is_watched_anew_that_another_pod_had_before(
    bench: Bench, make_run: MakeRun
) -> None:
    """A pod of a hung attempt ends and one of the next begins within the same pass."""
    bench.prepare(make_run(), "exit=0")
    number, end_of_first = os.pipe()
    second, end_of_second = os.pipe()

    async def wake() -> str:
        bench.executor._watch(frozenset({("first", number)}))
        os.close(end_of_first)
        os.dup2(second, number)  # closes what was watched
        bench.executor._watch(frozenset({("second", number)}))
        os.close(end_of_second)
        woken = await asyncio.wait_for(bench.executor._queue.get(), 10)
        bench.executor._watch(frozenset())
        return woken

    assert asyncio.run(wake()) == "cheetah"
    os.close(number)
    os.close(second)


def test_restarts_end_at_the_limit(bench: Bench, make_run: MakeRun) -> None:
    run = bench.drive(
        make_run(restart={"maxRestarts": 1, "backoffSeconds": 0}), "message=oh no+exit=1"
    )
    assert run.status.phase is Phase.FAILED
    assert run.status.attempt == 2
    failed = run.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == Reason.RESTARTS_EXHAUSTED
    assert "oh no" in failed.message


def test_a_refusal_fails_the_run_at_once(bench: Bench, make_run: MakeRun) -> None:
    run = bench.drive(make_run(), "message=no such device+exit=2")
    assert run.status.phase is Phase.FAILED
    assert run.status.attempt == 1
    failed = run.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == Reason.NON_RETRYABLE_EXIT
    assert "no such device" in failed.message


def test_a_missing_launcher_fails_the_run(
    store: LocalStore, storage: Path, make_run: MakeRun
) -> None:
    settings = LocalSettings(launcher=("no-such-launcher",))
    run = Bench(store, storage, lambda _: settings).drive(make_run(), "")
    assert run.status.phase is Phase.FAILED
    failed = run.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert "no-such-launcher" in failed.message


def test_suspend_checkpoints_and_the_next_drive_goes_on(bench: Bench, make_run: MakeRun) -> None:
    bench.when_ready(lambda: bench.executor.suspend("the test"))
    run = bench.drive(make_run(), "progress=500+hang,progress=1000+exit=0")
    assert run.status.phase is Phase.SUSPENDED
    assert run.spec.suspend is True
    assert run.metadata.annotations["drivetrain.dev/suspended-by"] == "the test"
    assert run.status.progress is not None
    assert run.status.progress.checkpoint_env_steps == 500
    assert run.status.history[0].counted is False
    assert not bench.listener.failures
    bench.listener.on.clear()
    again = bench.drive(make_run(), "progress=500+hang,progress=1000+exit=0")
    assert again.metadata.uid == run.metadata.uid
    assert again.status.phase is Phase.COMPLETE
    assert (again.status.attempt, again.status.restarts) == (2, 0)
    assert "drivetrain.dev/suspended-by" not in again.metadata.annotations


def test_kill_ends_a_stubborn_run_at_once(bench: Bench, make_run: MakeRun) -> None:
    def stop() -> None:
        bench.executor.suspend("the test")
        bench.executor.kill()

    bench.when_ready(stop)
    run = bench.drive(make_run(gracePeriodSeconds=600), "brood+stubborn")
    assert run.status.phase is Phase.SUSPENDED


def test_two_pods_end_together(bench: Bench, make_run: MakeRun) -> None:
    run = bench.drive(
        make_run(topology={"nodes": 2}), "0:hang+1:exit=1,progress=9+0:exit=0+1:exit=0"
    )
    assert run.status.phase is Phase.COMPLETE
    assert (run.status.attempt, run.status.restarts) == (2, 1)


def test_the_active_deadline_ends_the_run(bench: Bench, make_run: MakeRun) -> None:
    run = bench.drive(make_run(deadlines={"activeSeconds": 1}), "hang")
    assert run.status.phase is Phase.FAILED
    failed = run.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == Reason.ACTIVE_DEADLINE


def test_a_killed_pod_process_is_a_counted_failure(bench: Bench, make_run: MakeRun) -> None:
    def kill() -> None:
        for pid in owned(bench.uid):
            os.kill(pid, signal.SIGKILL)

    bench.when_ready(kill)
    run = bench.drive(make_run(), "hang,exit=0")
    assert (run.status.phase, run.status.restarts) == (Phase.COMPLETE, 1)


def test_a_killed_guard_is_replaced(bench: Bench, make_run: MakeRun) -> None:
    guards: list[int] = []

    def kill() -> None:
        assert bench.node._guard is not None
        guards.append(bench.node._guard.pid)
        os.kill(bench.node._guard.pid, signal.SIGKILL)
        for pid in owned(bench.uid):
            os.kill(pid, signal.SIGKILL)

    def note() -> None:
        assert bench.node._guard is not None
        guards.append(bench.node._guard.pid)

    bench.when_ready(kill)
    bench.listener.on[Reason.TRAINING_COMPLETE] = note
    run = bench.drive(make_run(), "hang,exit=0")
    assert run.status.phase is Phase.COMPLETE
    assert guards[0] != guards[1]


def test_a_full_disk_delays_and_ends_nothing(
    bench: Bench, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.prepare(make_run(), "exit=0")
    real, calls = bench.store.set_status, iter([OSError(28, "No space left on device")])

    def full(*args: Any) -> Any:
        for error in calls:
            raise error
        return real(*args)

    monkeypatch.setattr(bench.store, "set_status", full)
    run = asyncio.run(asyncio.wait_for(bench.executor.drive(), 20))
    assert run.status.phase is Phase.COMPLETE
    assert bench.listener.troubles == [(28, 1.0)]


DRIVER = """
import asyncio, importlib.util, sys
from pathlib import Path
from drivetrain_operator.local.store import LocalStore
sys.path.insert(0, sys.argv[1])
spec = importlib.util.spec_from_file_location("bench", f"{sys.argv[1]}/test_executor.py")
bench_module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench_module)
from drivetrain_operator.local.settings import LocalSettings
store = LocalStore(Path(sys.argv[2]))
words = (sys.executable, "-S", f"{sys.argv[1]}/stand_in.py", sys.argv[4])
bench = bench_module.Bench(store, Path(sys.argv[3]), lambda _: LocalSettings(launcher=words))
bench.prepare(store.get("cheetah"), "")
asyncio.run(bench.executor.drive())
"""


def test_no_process_outlives_a_killed_executor(
    bench: Bench, make_run: MakeRun, wait_until: Callable[..., Any]
) -> None:
    run = make_run(restart={"backoffSeconds": 0})
    applied = bench.store.apply(run, storage=bench.storage, now=datetime.now(UTC))
    uid = bench.uid = applied.metadata.uid
    here = str(Path(__file__).parent)
    words = [here, str(bench.store.root), str(bench.storage), "progress=3+brood+stubborn"]
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, *words])
    wait_until(lambda: len(list(owned(uid))) == 3)
    driver.kill()
    driver.wait()
    wait_until(lambda: list(owned(uid)) == [], 3)
    again = bench.drive(run, "progress=4+exit=0")
    assert again.status.phase is Phase.COMPLETE
    assert (again.status.attempt, again.status.restarts, again.status.disruptions) == (2, 0, 1)
    assert again.status.history[0].reason == Reason.DISRUPTED
