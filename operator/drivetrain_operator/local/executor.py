"""The loop that drives one run to its end: observe, reconcile, apply, as on a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from drivetrain_api.status import Phase
from drivetrain_operator.local import pod_object as pods_
from drivetrain_operator.local.files import read_tail
from drivetrain_operator.queue import KeyedQueue
from drivetrain_operator.reconcile.engine import reconcile
from drivetrain_operator.reconcile.snapshot import Observed, RunView
from drivetrain_operator.reconcile.views import ConfigMapView, JobView, PodView

if TYPE_CHECKING:
    from pathlib import Path

    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.local.backend import LocalBackend
    from drivetrain_operator.local.node import Place
    from drivetrain_operator.local.store import LocalStore
    from drivetrain_operator.reconcile.decision import Decision, EventRecord

PROGRESS_SECONDS: Final = 0.5
"""Between two looks at the progress files' times."""
LOG_BYTES: Final = 2048
"""Of a failed pod's log, what is shown."""
_BEGAN: Final = datetime.now(UTC)
_BEGAN_MONOTONIC: Final = time.monotonic()
_STOPPED: Final = frozenset({Phase.COMPLETE, Phase.FAILED, Phase.SUSPENDED})


@dataclass(frozen=True)
class PodFailure:
    """A pod that failed by itself, and the end of what it wrote to standard error."""

    pod: str
    exit_code: int
    reason: str
    log: Path
    tail: str


class Reporter(Protocol):
    """Where a person is told what happens."""

    def event(self, event: EventRecord) -> None:
        """Something happened to the run."""

    def pod_failed(self, failure: PodFailure) -> None:
        """A pod failed."""

    def trouble(self, error: OSError, wait: float) -> None:
        """A pass failed for the machine's reasons and is tried again after `wait` seconds."""


def utc_now() -> datetime:
    """The time, counted on from this process's start.

    A wall clock that is set meanwhile, or a machine that sleeps, neither makes a run look hung
    nor holds its next attempt back.
    """
    return _BEGAN + timedelta(seconds=time.monotonic() - _BEGAN_MONOTONIC)


class RunLostError(RuntimeError):
    """The stored run is gone, or can no longer be read, while it is driven."""


class LocalExecutor:
    """Drives one run; whoever makes it holds the run's lock.

    Args:
        store: Where the run is.
        name: The run.
        backend: What its Jobs and pods live in.
        place: The backend's folders.
        reporter: Who tells the user.
    """

    def __init__(
        self, store: LocalStore, name: str, backend: LocalBackend, place: Place, reporter: Reporter
    ) -> None:
        self._store = store
        self._name = name
        self._backend = backend
        self._place = place
        self._reporter = reporter
        self._queue: KeyedQueue[str] = KeyedQueue(first_delay=1.0, max_delay=30.0)
        self._watched: frozenset[tuple[str, int]] = frozenset()
        self._suspend_by: str | None = None
        self._told = {p["metadata"]["uid"] for p in backend.pods() if pods_.is_terminal(p)}

    async def drive(self) -> TrainingRun:
        """Reconcile until the run is over or suspended and nothing of it runs; the run then.

        Raises:
            LeftoverError: processes of an earlier executor cannot be killed.
            RunLostError: the store was tampered with.
        """
        self._backend.recover()
        self._queue.add(self._name)
        watch = asyncio.create_task(self._watch_progress())
        try:
            while not await self._next():
                pass
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
            self._watch(frozenset())
            self._queue.close()
            self._backend.close()
        return self._run()

    def suspend(self, by: str) -> None:
        """Have the run checkpoint and stop, because `by` asked for it."""
        self._suspend_by = by
        self._queue.add(self._name)

    def kill(self) -> None:
        """SIGKILL to every process of the run, now."""
        self._backend.kill()
        self._queue.add(self._name)

    async def _next(self) -> bool:
        """One pass of the queue; whether there is nothing left to do."""
        key = await self._queue.get()
        try:
            over = self._pass()
        except OSError as error:
            self._reporter.trouble(error, self._queue.retry(key))
            return False
        else:
            self._queue.forget(key)
            return over
        finally:
            self._queue.done(key)

    def _pass(self) -> bool:
        self._backend.tick()
        self._tell_of_pods()
        run = self._run()
        if self._suspend_by is not None:
            run = self._store.suspend(self._name, by=self._suspend_by)
            self._suspend_by = None
        now = utc_now()
        seen = self._backend.version
        decision = reconcile(self._observed(run), now)
        if decision.status != run.status:
            self._store.set_status(self._name, decision.status)
        for action in decision.actions:
            self._backend.apply(action)
        self._store.record(self._name, decision.events, now)
        for event in decision.events:
            self._reporter.event(event)
        self._backend.tick()
        self._watch(self._backend.descriptors())
        if self._backend.version != seen or decision.status != run.status:
            self._queue.add(self._name)
            return False
        self._wake(decision)
        return decision.status.phase in _STOPPED and not self._backend.live()

    def _run(self) -> TrainingRun:
        try:
            run = self._store.get(self._name)
        except ValueError as error:
            raise RunLostError(str(error)) from error
        if run is None:
            raise RunLostError(f"run {self._name!r} was removed while it was driven")
        return run

    def _observed(self, run: TrainingRun) -> Observed:
        return Observed(
            run=RunView.of(run),
            jobs=tuple(JobView.from_object(job) for job in self._backend.jobs()),
            pods=tuple(PodView.from_object(pod) for pod in self._backend.pods()),
            config_maps=tuple(ConfigMapView.from_object(m) for m in self._backend.config_maps()),
        )

    def _wake(self, decision: Decision) -> None:
        for delay in (decision.wake_after, self._backend.wake_after()):
            if delay is not None:
                self._queue.add(self._name, delay)

    def _watch(self, descriptors: frozenset[tuple[str, int]]) -> None:
        """Be woken by the end of these pods, and by no other's.

        A pod that begins may get the number of one that ended: the old one goes first.
        """
        loop = asyncio.get_running_loop()
        for _, gone in self._watched - descriptors:
            loop.remove_reader(gone)
        for _, new in descriptors - self._watched:
            loop.add_reader(new, self._queue.add, self._name)
        self._watched = descriptors

    async def _watch_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            if self._backend.progress_changed():
                self._queue.add(self._name)

    def _tell_of_pods(self) -> None:
        """Tell of pods that failed by themselves: those that were deleted are gone by now."""
        for pod in self._backend.pods():
            state = pods_.terminated(pod)
            uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
            if state is None or uid in self._told:
                continue
            self._told.add(uid)
            if state["exitCode"] != 0:
                log = self._place.log(name, "stderr")
                tail = read_tail(log, LOG_BYTES)
                self._reporter.pod_failed(
                    PodFailure(name, state["exitCode"], state["reason"], log, tail)
                )
