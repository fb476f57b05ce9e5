"""Real collector processes on a scripted environment: what they send, how they end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from learner_side import SOON, LearnerSide, actions, make_transport, settings
from scripted_env import ScriptedFactory

from drivetrain_api.metrics import UnknownMetricError
from drivetrain_trainer.runtime.child_process import ChildProcess
from drivetrain_trainer.runtime.collector import (
    CollectorBoot,
    CollectorEnd,
    CollectorProcess,
)
from drivetrain_trainer.runtime.doorbell import Interrupt
from drivetrain_trainer.runtime.faults import (
    CollectorFailedError,
    FailureClass,
    StaleTickError,
    StopRequestedError,
)
from drivetrain_trainer.runtime.ring_words import Command
from drivetrain_trainer.runtime.settings import RuntimeSettings
from drivetrain_trainer.runtime.transport import Transport

SEED = 11

_spare: list[CollectorProcess] = []


def spawn() -> CollectorProcess:
    """A collector; the next one imports while this test runs."""
    _spare.append(CollectorProcess.spawn())
    return _spare.pop(0) if len(_spare) > 1 else spawn()


@pytest.fixture(scope="module", autouse=True)
def no_spare_left() -> Iterator[None]:
    yield
    while _spare:
        _spare.pop().stop(0.0)


@dataclass
class Started:
    """A collector that is ready, and its learner."""

    collector: CollectorProcess
    transport: Transport
    learner: LearnerSide


Starter = Callable[..., Started]


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts collectors; whatever is left of them is stopped."""
    collectors: list[CollectorProcess] = []

    def starter(
        script: ScriptedFactory | None = None, runtime: RuntimeSettings | None = None
    ) -> Started:
        transport = make_transport(runtime)
        collector = spawn()
        collectors.append(collector)
        collector.boot(CollectorBoot(script or ScriptedFactory(), SEED, transport))
        collector.await_ready(SOON)
        learner = LearnerSide(collector.port, collector.ingress)
        return Started(collector, transport, learner)

    yield starter
    for collector in collectors:
        collector.stop(5.0)


def test_a_stop_at_a_tick_ends_the_collector_well(start: Starter) -> None:
    run = start()
    run.learner.serve(3)
    run.learner.settle()
    assert torch.isfinite(run.learner.rows).all()
    report = run.collector.report()
    assert report is not None
    assert report.ticks == 3
    assert run.collector.snapshot() is None
    run.collector.port.respond(3, 3, None, Command.STOP)
    end = run.collector.stop(5.0)
    assert end == CollectorEnd(exitcode=0, killed=False)
    assert str(end) == "collector exit status 0"
    assert not end.alive
    assert run.collector.stop(5.0) == end
    assert not Path(f"/proc/{run.collector.pid}").exists()


def test_a_stop_reaches_a_collector_that_waits_for_its_action(start: Starter) -> None:
    run = start()
    run.learner.serve(3)
    stopped = time.monotonic()
    assert run.collector.stop(5.0) == CollectorEnd(exitcode=0, killed=False)
    print(f"\nstopped after {(time.monotonic() - stopped) * 1e3:.0f} ms")


def test_a_stop_reaches_a_collector_that_waits_for_a_free_slot(start: Starter) -> None:
    run = start(runtime=settings(num_envs=4, depth=1, slot_rows=1))
    port = run.collector.port
    port.await_request(0, SOON)
    port.respond(0, 0, actions(0, 4))
    while run.transport.ingress.counters().backpressure_waits == 0:
        time.sleep(0.001)
    assert run.collector.stop(5.0) == CollectorEnd(exitcode=0, killed=False)
    counters = run.transport.ingress.counters()
    assert (counters.published_sequence, counters.dropped_batches) == (1, 3)
    assert (counters.early_returns, counters.stop_returns) == (1, 1)


def test_a_collector_that_hangs_is_a_stale_tick_and_is_killed(start: Starter) -> None:
    run = start(ScriptedFactory(hang_at=1))
    run.learner.serve(2)
    with pytest.raises(StaleTickError) as caught:
        run.collector.port.await_request(2, 0.05)
    assert caught.value.classification is FailureClass.STALE_TICK
    assert run.collector.exitcode is None
    end = run.collector.stop(0.05)
    assert end == CollectorEnd(exitcode=-signal.SIGKILL, killed=True)
    assert str(end) == "collector killed by SIGKILL, after its grace"


def test_an_exception_in_an_environment_is_told_with_its_tick(start: Starter) -> None:
    run = start(ScriptedFactory(raise_at=3))
    with pytest.raises(CollectorFailedError, match="diverged for good at step 3") as caught:
        run.learner.serve(10)
    failure = caught.value.failure
    assert failure is not None
    assert (failure.error_type, failure.tick) == ("FloatingPointError", 3)
    assert "scripted_env.py" in failure.trace
    assert caught.value.exitcode == 1
    assert caught.value.classification is FailureClass.COLLECTOR


def test_a_killed_collector_is_noticed_at_once(start: Starter) -> None:
    run = start()
    run.learner.serve(3)
    os.kill(run.collector.pid, signal.SIGKILL)
    killed = time.monotonic()
    with pytest.raises(CollectorFailedError, match="killed by SIGKILL"):
        run.learner.serve(2)
    waited = time.monotonic() - killed
    print(f"\nSIGKILL of the collector seen after {waited * 1e3:.1f} ms")
    assert waited < 2.0


def test_a_collector_that_kills_itself_within_a_step_is_noticed(start: Starter) -> None:
    run = start(ScriptedFactory(kill_at=2))
    with pytest.raises(CollectorFailedError, match="killed by SIGKILL") as caught:
        run.learner.serve(10)
    assert caught.value.signal == signal.SIGKILL
    assert run.learner.tick == 0
    assert run.learner.replay.size == 8, "the rows of the ticks before are kept"


def test_environments_that_cannot_be_made_are_told_by_the_ready_wait(start: Starter) -> None:
    with pytest.raises(CollectorFailedError, match="ValueError: no such robot") as caught:
        start(ScriptedFactory(fail_to_make=True))
    assert caught.value.failure is not None
    assert caught.value.failure.tick is None


def test_a_slow_start_can_be_interrupted_times_out_and_is_killed_at_once() -> None:
    transport = make_transport()
    collector = spawn()
    script = ScriptedFactory(make_seconds=3600.0)
    collector.boot(CollectorBoot(script, SEED, transport))
    interrupt = Interrupt()
    threading.Timer(0.01, interrupt.set).start()
    with pytest.raises(StopRequestedError):
        collector.await_ready(SOON, interrupt=interrupt)
    with pytest.raises(StaleTickError, match="for the collector to make its environments"):
        collector.await_ready(0.01)
    stopped = time.monotonic()
    assert collector.stop(60.0).signal == signal.SIGKILL
    assert time.monotonic() - stopped < 2.0


def test_a_collector_that_died_before_its_boot_is_told() -> None:
    collector = CollectorProcess.spawn()
    os.kill(collector.pid, signal.SIGKILL)
    transport = make_transport()
    with pytest.raises(CollectorFailedError, match="killed by SIGKILL"):  # noqa: PT012
        collector.boot(CollectorBoot(ScriptedFactory(), SEED, transport))
        collector.await_ready(SOON)
    collector.stop(0.0)


def test_what_needs_a_boot_says_so() -> None:
    with CollectorProcess.spawn() as collector:
        for use in (lambda: collector.port, lambda: collector.ingress, collector.report):
            with pytest.raises(RuntimeError, match="not been booted"):
                use()


def test_the_learners_side_imports_no_torch() -> None:
    """Else the collector could not be spawned first."""
    module = "drivetrain_trainer.runtime.collector"
    heavy = f"import sys, {module}; sys.exit(sum(m in sys.modules for m in ('torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", heavy], check=False).returncode == 0


def test_nothing_is_left_after_everything_was_killed() -> None:
    shared = set(Path("/dev/shm").iterdir())
    with ChildProcess.spawn("learner_child:learn_for_ever", "learner") as learner:
        collector = learner.receive()
        assert isinstance(collector, int), learner.failure
        maps = Path(f"/proc/{collector}/maps").read_text()
        assert "memfd:drivetrain-ingress" in maps
        watch = os.pidfd_open(collector)
        os.kill(learner.pid, signal.SIGKILL)
        poller = select.poll()
        poller.register(watch, select.POLLIN)
        assert poller.poll(2_000), "the collector outlived its learner"
        os.close(watch)
    assert set(Path("/dev/shm").iterdir()) == shared
    assert not list(Path("/tmp").glob("pymp-*"))


OWN_LOG = {"gait/duty": True, "falls/left": True}


def test_metrics_of_an_environments_own_arrive_by_family(start: Starter) -> None:
    """Steps 0, 1 and 2 log their number: their mean is 1, their sum 3."""
    run = start(ScriptedFactory(own_log=OWN_LOG | {"untagged": False}))
    run.learner.serve(3)
    run.learner.settle()
    report = run.collector.report()
    assert report is not None
    assert report.ticks == 3
    assert report.log["gait/duty"] == pytest.approx(1.0)
    assert report.log["falls/left"] == 3.0
    assert set(report.log) == {"reward/alive", *OWN_LOG}, "what has no slash stays where it is"
    assert not any("untagged" in name for name in (*report.metrics, *report.totals.sums))


def test_a_metric_that_was_not_declared_is_named_at_the_report(start: Starter) -> None:
    run = start(ScriptedFactory(own_log=OWN_LOG | {"gate/duty": False}))
    run.learner.serve(1)
    run.learner.settle()
    with pytest.raises(UnknownMetricError, match=r"'gate/duty' is of no.*mean gait/"):
        run.collector.report()


def test_a_declared_metric_of_no_family_is_refused_before_the_first_tick(start: Starter) -> None:
    with pytest.raises(CollectorFailedError, match="'gate/duty' is of no family"):
        start(ScriptedFactory(own_log={"gate/duty": True}))
