"""Watches over a rank's life and tells its end: who began it, in what phase, what was left.

The first failure is the cause; what fails after it, the take-down included, is only noted.
A stop that was asked for is the cause where nothing failed. Snapshots of ring and ingress are
taken when the cause is recorded, the collector's after it was taken down.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from drivetrain_api.artifacts.runtime_manifest import ReplayIngressEvidence
from drivetrain_api.artifacts.shutdown import (
    Classification,
    CleanupSnapshot,
    CollectorSnapshot,
    InferenceRingSnapshot,
    LearnerCoordination,
    LifePhase,
    Owner,
    ShutdownException,
    ShutdownReport,
)
from drivetrain_trainer.evidence.fence import FencedError
from drivetrain_trainer.launcher.life import Life, LifeMark
from drivetrain_trainer.physics.port import BackendWorkerError
from drivetrain_trainer.runtime.faults import FailureClass, RankLostError, RuntimeFault
from drivetrain_trainer.runtime.settings import STOP_GRACE_S
from drivetrain_trainer.training.cleanup import Cleanup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drivetrain_trainer.runtime.collector import CollectorProcess
    from drivetrain_trainer.runtime.replay import ReplayRing
    from drivetrain_trainer.runtime.transport import Transport
    from drivetrain_trainer.training.ranks import Ranks
    from drivetrain_trainer.training.schedule import Cursor
    from drivetrain_trainer.training.stop import StopSignal

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

COLLECTOR_TIMEOUT_S: Final = STOP_GRACE_S + 15.0
"""Its grace, and what the kernel may take to end what was killed."""

_OWNER = {
    FailureClass.LEARNER: Owner.LEARNER,
    FailureClass.COLLECTOR: Owner.COLLECTOR,
    FailureClass.BACKEND_WORKER: Owner.BACKEND_WORKER,
    FailureClass.STALE_TICK: Owner.COLLECTOR,
    FailureClass.CANCELLED: Owner.EXTERNAL,
    FailureClass.UNKNOWN: Owner.UNKNOWN,
}
_MESSAGE_LIMIT = 4096


@dataclass(frozen=True)
class Blame:
    """Who began an end."""

    classification: Classification
    owner: Owner


COMPLETED = Blame(Classification.NORMAL_COMPLETION, Owner.LEARNER)
CANCELLED = Blame(Classification.EXTERNAL_CANCELLATION, Owner.EXTERNAL)


def blame(error: BaseException) -> Blame:
    """Whom an exception of the learner's process accuses.

    A fault of the runtime carries its class. Any other exception is the learner's own, unless
    a simulator process of its evaluation failed, or a newer attempt has taken the run over.
    """
    if isinstance(error, RankLostError):
        return Blame(Classification.UNKNOWN_FAILURE, Owner.OTHER_RANK)
    if isinstance(error, RuntimeFault):
        found = error.classification
    elif isinstance(error, BackendWorkerError):
        found = FailureClass.BACKEND_WORKER
    elif isinstance(error, FencedError):
        found = FailureClass.CANCELLED
    else:
        found = FailureClass.LEARNER
    return Blame(Classification(found.value), _OWNER[found])


@dataclass(frozen=True)
class _Moment:
    """Where the rank was."""

    phase: LifePhase
    iteration: int
    tick: int | None


@dataclass(frozen=True)
class _Cause:
    """The first cause, with all that was to be seen then."""

    blame: Blame
    moment: _Moment
    error: BaseException | None
    coordination: LearnerCoordination
    ring: InferenceRingSnapshot | None
    ingress: ReplayIngressEvidence | None


class RankSupervisor:
    """One rank's, from before its first part is made until after the last is closed."""

    def __init__(
        self,
        collector: CollectorProcess,
        stop: StopSignal,
        *,
        grace_seconds: float,
        mark: LifeMark | None = None,
    ) -> None:
        """Watch from now on; a stop must be over in `grace_seconds`, `mark` keeps the phase."""
        self.cleanup = Cleanup()
        self._collector = collector
        self._stop = stop
        self._mark = mark or LifeMark()
        self._collector_grace_s = min(STOP_GRACE_S, grace_seconds / 5)
        self._phase = LifePhase.START_UP
        self._cursor: Cursor | None = None
        self._first_tick: int | None = None
        self._ranks: Ranks | None = None
        self._transport: Transport | None = None
        self._replay: ReplayRing | None = None
        self._asked: _Moment | None = None
        self._cause: _Cause | None = None
        self._collector_end: CollectorSnapshot | None = None
        if stop.requested:
            self._note_asked()
        stop.on_request = self._note_asked

    @property
    def phase(self) -> LifePhase:
        """What the rank is doing; where an exception passed, what it was doing then."""
        return self._phase

    @contextmanager
    def during(self, phase: LifePhase) -> Iterator[None]:
        """Mark a phase; an exception leaves the mark where it was raised."""
        before = self._phase
        self._enter(phase)
        yield
        self._enter(before)

    def learning(self, begins: bool) -> None:  # noqa: FBT001 - a callback
        """Updates begin, or have ended."""
        self._enter(LifePhase.LEARNING if begins else LifePhase.COLLECTING)

    def know(
        self,
        *,
        cursor: Cursor | None = None,
        ranks: Ranks | None = None,
        transport: Transport | None = None,
        replay: ReplayRing | None = None,
    ) -> None:
        """Watch these from now on."""
        self._cursor = cursor or self._cursor
        self._ranks = ranks or self._ranks
        self._transport = transport or self._transport
        self._replay = replay or self._replay

    def enter_loop(self, *, warming_up: bool) -> None:
        """The lockstep with the collector begins, or goes on; ticks count from its beginning."""
        if self._first_tick is None:
            self._first_tick = self._cursor.tick if self._cursor is not None else 0
        self._enter(LifePhase.WARM_UP if warming_up else LifePhase.COLLECTING)

    def enter_finish(self) -> None:
        """The loop has ended at a boundary; what follows completes the run or its stop."""
        if self._stop.requested:
            self._note_asked()
        self._enter(LifePhase.FINISH)

    def completed(self) -> None:
        """The run reached its end, and all of it is written."""
        self._record(COMPLETED, None)

    def stopped(self) -> None:
        """The rank ended in order since it, or another one, was asked to."""
        self._note_asked()
        self._record(CANCELLED, None)

    def failed(self, error: BaseException) -> None:
        """Something failed; only the first failure is the cause."""
        self._record(self._blame(error), error)

    def stopped_in_start_up(self, error: BaseException) -> bool:
        """Whether a rank was lost only since all were asked to stop before there was a loop."""
        return (
            self._stop.requested
            and self._phase is LifePhase.START_UP
            and isinstance(error, RankLostError)
        )

    def take_down_collector(self) -> None:
        """End it in bounded time, with all that it started."""
        self.cleanup.attempt("stop collector", self._stop_collector, timeout_s=COLLECTOR_TIMEOUT_S)
        if self._collector_end is None:
            code = self._collector.exitcode
            self._collector_end = _collector_snapshot(self._collector.pid, code, killed=True)

    def report(self) -> ShutdownReport:
        """The end, as far as it is known."""
        if self._cause is None:
            self.failed(RuntimeError("no end was recorded"))
        cause = self._cause
        assert cause is not None, "recorded above"
        epochs = cause.ring.response_epochs if cause.ring is not None else ()
        served = cause.ring is not None and cause.ring.responses > 0
        return ShutdownReport(
            classification=cause.blame.classification,
            owner=cause.blame.owner,
            phase=cause.moment.phase,
            iteration=cause.moment.iteration,
            coordination_tick=cause.moment.tick,
            inference_epoch=max(epochs) if served else None,
            exception=_exception(cause.error),
            learner_coordination=cause.coordination,
            inference_ring=cause.ring,
            replay_ingress=cause.ingress,
            collector=self._collector_end
            or _collector_snapshot(self._collector.pid, self._collector.exitcode, killed=False),
            cleanup=CleanupSnapshot(errors=tuple(self.cleanup.errors)),
        )

    def log(self) -> None:
        """Tell the end in one line."""
        report = self.report()
        raised = report.exception
        (log.info if raised is None else log.error)(
            "shutdown",
            classification=report.classification.value,
            owner=report.owner.value,
            phase=report.phase.value,
            tick=report.coordination_tick,
            epoch=report.inference_epoch,
            iteration=report.iteration,
            error=f"{raised.type}: {raised.message}"[:300] if raised is not None else None,
            collector=report.collector.exitcode if report.collector is not None else None,
            cleanup_errors=len(report.cleanup.errors),
        )

    def _record(self, found: Blame, error: BaseException | None) -> None:
        if self._cause is not None:
            return
        asked = self._asked if found is CANCELLED else None
        ring = self._snapshot("inference ring", self._ring)
        ingress = self._snapshot("replay ingress", self._ingress)
        self._cause = _Cause(
            found, asked or self._moment(), error, self._coordination(), ring, ingress
        )

    def _blame(self, error: BaseException) -> Blame:
        found = blame(error)
        if found.owner is Owner.UNKNOWN and self._collector.exitcode is not None:
            return Blame(Classification.COLLECTOR_FAILURE, Owner.COLLECTOR)
        return found

    def _note_asked(self) -> None:
        """Where the rank was when it was asked to stop; also called by the signal's handler."""
        if self._asked is None:
            self._asked = self._moment()

    def _enter(self, phase: LifePhase) -> None:
        self._phase = phase
        moment, cursor = self._moment(), self._cursor
        env_steps = cursor.env_steps if cursor is not None else 0
        self._mark.write(Life(phase, moment.tick, moment.iteration, env_steps))

    def _moment(self) -> _Moment:
        cursor = self._cursor
        if cursor is None:
            return _Moment(self.phase, 0, None)
        begun = self._first_tick
        return _Moment(self.phase, cursor.iteration, None if begun is None else cursor.tick - begun)

    def _snapshot(self, name: str, read: Callable[[], _T | None]) -> _T | None:
        try:
            return read()
        except Exception as error:  # noqa: BLE001  # it may be damaged: that must not hide the cause
            self.cleanup.note(f"read {name}", error)
            return None

    def _ring(self) -> InferenceRingSnapshot | None:
        if self._transport is None:
            return None
        ring = self._transport.ring
        return InferenceRingSnapshot(
            capacity=ring.capacity, groups=ring.groups, **asdict(ring.state())
        )

    def _ingress(self) -> ReplayIngressEvidence | None:
        if self._transport is None:
            return None
        return ReplayIngressEvidence(**asdict(self._transport.ingress.counters()))

    def _coordination(self) -> LearnerCoordination:
        ranks, cursor = self._ranks, self._cursor
        return LearnerCoordination(
            rank=ranks.rank if ranks is not None else int(os.environ.get("RANK", "0")),
            world_size=(
                ranks.world_size if ranks is not None else int(os.environ.get("WORLD_SIZE", "1"))
            ),
            env_steps=cursor.env_steps if cursor is not None else 0,
            replay_rows=self._replay.size if self._replay is not None else None,
            stop_requested=self._stop.requested,
            stop_signal=self._stop.signal,
        )

    def _stop_collector(self) -> None:
        end = self._collector.stop(self._collector_grace_s)
        self._collector_end = _collector_snapshot(
            self._collector.pid, end.exitcode, killed=end.killed
        )
        log.info("collector ended", how=str(end))


def _collector_snapshot(pid: int, exitcode: int | None, *, killed: bool) -> CollectorSnapshot:
    by_signal = -exitcode if exitcode is not None and exitcode < 0 else None
    return CollectorSnapshot(
        pid=pid, alive=exitcode is None, exitcode=exitcode, signal=by_signal, killed=killed
    )


def _exception(error: BaseException | None) -> ShutdownException | None:
    if error is None:
        return None
    return ShutdownException(type=type(error).__name__[:253], message=str(error)[:_MESSAGE_LIMIT])
