"""Who is blamed for an end: the table of causes, first cause first; clean-up is bounded."""

from __future__ import annotations

import errno
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drivetrain_api.artifacts.shutdown import Classification, LifePhase, Owner
from drivetrain_trainer.algorithms.sac.agent import NonFiniteTrainingError
from drivetrain_trainer.evidence.fence import FencedError
from drivetrain_trainer.physics.port import BackendWorkerError
from drivetrain_trainer.runtime.collector import CollectorEnd
from drivetrain_trainer.runtime.faults import (
    ChildFailure,
    CollectorFailedError,
    FailureClass,
    PeerDiedError,
    ProtocolError,
    RankLostError,
    StaleTickError,
    StopRequestedError,
)
from drivetrain_trainer.runtime.inference_ring import InferenceRing
from drivetrain_trainer.runtime.ingress import ReplayIngress
from drivetrain_trainer.training.cleanup import MOST_ERRORS, Cleanup
from drivetrain_trainer.training.schedule import Cursor
from drivetrain_trainer.training.stop import StopSignal
from drivetrain_trainer.training.supervisor import RankSupervisor, blame

C, O = Classification, Owner  # noqa: E741 - a table reads better with short names


class FakeCollector:
    """A collector whose end is given."""

    pid = 41

    def __init__(self, exitcode: int | None = None, *, stays: bool = False) -> None:
        self.exitcode = exitcode
        self._stays = stays

    def stop(self, grace_s: float) -> CollectorEnd:
        if self._stays:
            raise TimeoutError(f"process {self.pid} stays after {grace_s} s")
        if self.exitcode is None:
            self.exitcode = 0
        return CollectorEnd(self.exitcode, killed=False)


class FakeTransport:
    """Real rings, nobody at their other end."""

    def __init__(self) -> None:
        self.ring = InferenceRing.create(4, 3, 2)
        self.ingress = ReplayIngress.create(2, 4, 10)

    def close(self) -> None:
        self.ring.close()
        self.ingress.close()


def supervisor(collector: FakeCollector | None = None, stop: StopSignal | None = None) -> Any:
    return RankSupervisor(
        cast("Any", collector or FakeCollector()), stop or StopSignal(), grace_seconds=60.0
    )


def test_the_classes_of_faults_are_those_of_the_report() -> None:
    reported = {found.value for found in Classification} - {"normal_completion"}
    assert {found.value for found in FailureClass} == reported


def collector_failure(accused: FailureClass | None) -> CollectorFailedError:
    failure = ChildFailure("BackendWorkerError", "simulator is gone", "", 3, accused)
    return CollectorFailedError("collector", 41, 1, failure)


@pytest.mark.parametrize(
    ("error", "classification", "owner"),
    [
        (CollectorFailedError("collector", 41, -9, None), C.COLLECTOR_FAILURE, O.COLLECTOR),
        (collector_failure(None), C.COLLECTOR_FAILURE, O.COLLECTOR),
        (
            collector_failure(FailureClass.BACKEND_WORKER),
            C.BACKEND_WORKER_FAILURE,
            O.BACKEND_WORKER,
        ),
        (BackendWorkerError("fake", 7, "is gone"), C.BACKEND_WORKER_FAILURE, O.BACKEND_WORKER),
        (StaleTickError(7, 120.0), C.STALE_TICK, O.COLLECTOR),
        (StopRequestedError(), C.EXTERNAL_CANCELLATION, O.EXTERNAL),
        (FencedError("attempt 2 owns it"), C.EXTERNAL_CANCELLATION, O.EXTERNAL),
        (RankLostError("connection reset"), C.UNKNOWN_FAILURE, O.OTHER_RANK),
        (ProtocolError("slot", expected=1, found=2), C.UNKNOWN_FAILURE, O.UNKNOWN),
        (PeerDiedError("learner", 1), C.UNKNOWN_FAILURE, O.UNKNOWN),
        (NonFiniteTrainingError("loss is nan"), C.LEARNER_FAILURE, O.LEARNER),
        (OSError(errno.ENOSPC, "No space left"), C.LEARNER_FAILURE, O.LEARNER),
        (MemoryError(), C.LEARNER_FAILURE, O.LEARNER),
        (SystemExit(4), C.LEARNER_FAILURE, O.LEARNER),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_whom_an_exception_accuses(
    error: BaseException, classification: Classification, owner: Owner
) -> None:
    found = blame(error)
    assert (found.classification, found.owner) == (classification, owner)


def test_the_first_failure_is_the_cause_whatever_fails_after_it() -> None:
    watched = supervisor(FakeCollector(-9))
    watched.know(cursor=Cursor(tick=7, iteration=5, env_steps=28))
    watched.failed(CollectorFailedError("collector", 41, -9, None))
    watched.failed(OSError("disk full"))
    watched.completed()
    watched.take_down_collector()
    report = watched.report()
    assert report.classification is C.COLLECTOR_FAILURE
    assert report.exception is not None
    assert report.exception.type == "CollectorFailedError"
    assert (report.collector.exitcode, report.collector.signal) == (-9, 9)
    assert (report.iteration, report.coordination_tick) == (5, None), "there was no lockstep yet"


def test_a_fault_of_nobody_is_laid_at_a_collector_that_is_dead() -> None:
    watched = supervisor(FakeCollector(-11))
    watched.failed(PeerDiedError("peer", 41))
    assert watched.report().owner is O.COLLECTOR


@pytest.mark.parametrize("phase", [*LifePhase])
def test_an_exception_leaves_the_phase_where_it_was_raised(phase: LifePhase) -> None:
    watched = supervisor()

    def fail() -> None:
        with watched.during(phase):
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as caught:
        fail()
    watched.failed(caught.value)
    assert watched.report().phase is phase


def test_a_signal_is_dated_back_to_the_phase_that_it_came_in() -> None:
    stop = StopSignal()
    watched = supervisor(stop=stop)
    with watched.during(LifePhase.EVALUATION):
        stop._remember(signal.SIGTERM, None)
    with watched.during(LifePhase.FINISH):
        watched.stopped()
    report = watched.report()
    assert (report.classification, report.phase) == (C.EXTERNAL_CANCELLATION, LifePhase.EVALUATION)
    assert report.exception is None
    assert report.learner_coordination.stop_requested
    assert report.learner_coordination.stop_signal == "SIGTERM"


def test_a_failure_after_a_signal_is_a_failure_in_its_own_phase() -> None:
    stop = StopSignal()
    watched = supervisor(stop=stop)
    stop._remember(signal.SIGTERM, None)
    with pytest.raises(OSError, match="disk"), watched.during(LifePhase.CHECKPOINT):
        raise OSError("disk full")
    watched.failed(OSError("disk full"))
    report = watched.report()
    assert (report.classification, report.phase) == (C.LEARNER_FAILURE, LifePhase.CHECKPOINT)
    assert report.learner_coordination.stop_requested


@pytest.mark.parametrize(
    ("requested", "phase", "stopped"),
    [
        (True, LifePhase.START_UP, True),
        (False, LifePhase.START_UP, False),
        (True, LifePhase.CHECKPOINT, False),
    ],
)
def test_ranks_that_leave_a_start_up_lose_one_another(
    requested: bool, phase: LifePhase, stopped: bool
) -> None:
    stop = StopSignal()
    if requested:
        stop.interrupt.set()
    watched = supervisor(stop=stop)
    with watched.during(phase):
        assert watched.stopped_in_start_up(RankLostError("reset")) is stopped
        assert not watched.stopped_in_start_up(OSError("reset"))


def test_snapshots_are_what_the_shared_slots_say() -> None:
    transport = FakeTransport()
    watched = supervisor()
    watched.know(
        cursor=Cursor(tick=3, iteration=2, env_steps=12),
        transport=cast("Any", transport),
        replay=cast("Any", SimpleNamespace(size=8)),
    )
    slot = transport.ring.slot(0)
    slot.request[0], slot.response[0], slot.response[1] = 7, 6, 5
    transport.ring.header()[1] = 7
    watched.failed(ValueError("x"))
    report = watched.report()
    assert report.inference_ring is not None
    assert report.inference_ring.requested_ticks == (7,)
    assert report.inference_ring.responded_ticks == (6,)
    assert (report.inference_ring.responses, report.inference_epoch) == (7, 5)
    assert not report.inference_ring.stop_requested
    assert report.replay_ingress is not None
    assert report.replay_ingress.ingress_depth == transport.ingress.depth
    assert report.learner_coordination.replay_rows == 8
    transport.close()


def test_a_snapshot_that_cannot_be_read_is_noted_and_hides_nothing() -> None:
    transport = FakeTransport()
    transport.close()
    watched = supervisor()
    watched.know(transport=cast("Any", transport))
    watched.failed(ValueError("the cause"))
    report = watched.report()
    assert report.exception is not None
    assert report.exception.message == "the cause"
    assert [line.partition(":")[0] for line in report.cleanup.errors] == [
        "read inference ring",
        "read replay ingress",
    ]


def test_a_collector_that_stays_is_alive_in_the_report() -> None:
    watched = supervisor(FakeCollector(stays=True))
    watched.completed()
    watched.take_down_collector()
    report = watched.report()
    assert report.collector is not None
    assert report.collector.alive
    assert report.cleanup.errors
    assert "stays" in report.cleanup.errors[0]


class TestCleanup:
    def test_steps_are_done_last_first_and_all_of_them(self) -> None:
        done: list[str] = []
        cleanup = Cleanup()
        cleanup.add("first", lambda: done.append("first"))
        cleanup.add("broken", lambda: {"here": 1}["missing"])
        cleanup.add("last", lambda: done.append("last"))
        cleanup.close()
        cleanup.close()
        assert done == ["last", "first"]
        assert cleanup.errors == ["broken: KeyError: 'missing'"]

    def test_a_step_that_hangs_costs_its_time_alone(self) -> None:
        release = threading.Event()
        cleanup = Cleanup()
        began = time.monotonic()
        assert not cleanup.attempt("hang", lambda: release.wait(60.0), timeout_s=0.05)
        assert time.monotonic() - began < 10.0
        assert cleanup.errors == ["hang: TimeoutError: not done within 0.05 s"]
        release.set()

    def test_errors_are_bounded_in_number_and_in_length(self) -> None:
        cleanup = Cleanup()
        for _ in range(2 * MOST_ERRORS):
            cleanup.note("step", ValueError("x\n" * 10_000))
        assert len(cleanup.errors) == MOST_ERRORS
        assert all(len(line) <= 1000 and "\n" not in line for line in cleanup.errors)

    def test_a_context_is_left(self) -> None:
        left: list[str] = []

        class Context:
            def __enter__(self) -> str:
                return "value"

            def __exit__(self, *_: object) -> None:
                left.append("left")

        cleanup = Cleanup()
        assert cleanup.enter("context", Context()) == "value"
        cleanup.close()
        assert left == ["left"]
