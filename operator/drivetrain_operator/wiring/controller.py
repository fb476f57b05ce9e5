"""The workers: take a run from the queue, look, decide, hold back what may wait, apply."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from drivetrain_operator.cluster.errors import ApiError, ConflictError, NotFoundError
from drivetrain_operator.manifests.settings import Settings
from drivetrain_operator.queue import KeyedQueue, QueueClosedError
from drivetrain_operator.reconcile.decision import Create
from drivetrain_operator.reconcile.engine import reconcile
from drivetrain_operator.reconcile.fields import mapping, text
from drivetrain_operator.reconcile.throttle import only_figures_differ, throttle
from drivetrain_operator.wiring.logs import get_logger, run_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from drivetrain_api.status import TrainingRunStatus
    from drivetrain_operator.cluster.keys import RunKey
    from drivetrain_operator.reconcile.decision import Action, Decision
    from drivetrain_operator.reconcile.fields import Object
    from drivetrain_operator.reconcile.snapshot import ForeignObject, Observed, RunView
    from drivetrain_operator.wiring.echoes import Echoes
    from drivetrain_operator.wiring.metrics import Metrics

RETRY_AFTER_LIMIT: Final = 10.0
"""Seconds; a server that asks for more patience gets it in several rounds."""
LOOK_AGAIN_SECONDS: Final = 5.0
"""After a second creation in a row."""
FIRST_DELAY: Final = 0.5
MAX_DELAY: Final = 60.0
"""Seconds that a run waits after its first failure, and at most."""

_log = get_logger(__name__)


class Runs(Protocol):
    """The store, as far as a pass needs it."""

    def observed(self, key: RunKey) -> Observed | None:
        """The run and everything around it; None once it is gone."""


class Applies(Protocol):
    """Whoever applies decisions."""

    def apply(
        self, run: RunView, decision: Decision, written: Callable[[Object], None]
    ) -> Awaitable[ForeignObject | None]:
        """Apply a decision, in its order; tell of the stored status before any action.

        Returns:
            The object whose name was in the way, if there was one.

        Raises:
            ApiError: what failed; the run is to be tried again.
        """


class Inspects(Protocol):
    """Whoever asks the API server for its opinion of a run's Job."""

    def __call__(self, run: RunView) -> Awaitable[RunView]:
        """The run, with the server's refusals added to its own.

        Raises:
            ApiError: the server gave no opinion.
        """


class NotLeadingError(RuntimeError):
    """The Lease is not held at this moment: nothing may be written."""


@dataclass(frozen=True)
class Ports:
    """What the workers work with."""

    runs: Runs
    applier: Applies
    inspect: Inspects
    echoes: Echoes
    """What the watch of TrainingRuns owes."""
    metrics: Metrics
    leading: Callable[[], bool]
    """Whether this replica may write, asked before each decision is applied."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


class Controller:
    """Keeps runs as they should be; one for each event loop.

    Args:
        ports: What it works with.
        manifests: The administrator's defaults for a run's objects.
        interval: Shortest time between two writes of newer figures alone.
    """

    def __init__(
        self, ports: Ports, manifests: Settings | None = None, *, interval: timedelta
    ) -> None:
        self._ports = ports
        self._manifests = manifests or Settings()
        self._interval = interval
        self.queue: KeyedQueue[RunKey] = KeyedQueue(first_delay=FIRST_DELAY, max_delay=MAX_DELAY)
        self._figures_at: dict[RunKey, datetime] = {}
        """When figures of a run were last written."""
        self._ended: dict[RunKey, int] = {}
        """Attempts of a run that were followed by another, as last seen."""
        self._made: set[RunKey] = set()
        """Runs whose last pass created something."""
        self._passed_at = time.monotonic()

    async def work(self) -> None:
        """One worker: passes over runs until the queue is closed."""
        while True:
            try:
                key = await self.queue.get()
            except QueueClosedError:
                return
            try:
                await self._safely(key)
            finally:
                self._passed_at = time.monotonic()
                self.queue.done(key)
            # A pass that writes nothing waits for nothing: thousands of them in a row, as at
            # a start, would leave the Lease unrenewed and the probes unanswered.
            await asyncio.sleep(0)

    def since_pass(self) -> float:
        """Seconds since a pass ended."""
        return time.monotonic() - self._passed_at

    async def _safely(self, key: RunKey) -> None:
        """One pass; whatever goes wrong with it is tried again, and hinders no other run."""
        log = run_logger(_log, key.namespace, key.name)
        try:
            await self._pass(key)
        except (ConflictError, NotFoundError) as error:
            # The snapshot was stale; the watch brings what was missed.
            self._again(key, error, log.debug)
        except ApiError as error:
            self._again(key, error, log.warning)
            if error.retry_after:
                # The whole server is busy: the worker rests with the run.
                await asyncio.sleep(min(error.retry_after, RETRY_AFTER_LIMIT))
        except NotLeadingError:
            # Usually the process ends; where it does not, the run must not wait for a resync.
            wait = self.queue.retry(key)
            log.warning("not leading: nothing was applied", retry_seconds=wait)
        except Exception:
            self._ports.metrics.failed("Internal")
            wait = self.queue.retry(key)
            log.exception("a pass failed", retry_seconds=wait)
        else:
            self.queue.forget(key)

    def _again(self, key: RunKey, error: ApiError, tell: Callable[..., object]) -> None:
        self._ports.metrics.failed(error.kind)
        wait = self.queue.retry(key)
        tell("a pass failed", error=str(error), retry_seconds=wait)

    async def _pass(self, key: RunKey) -> None:
        observed = self._ports.runs.observed(key)
        if observed is None:
            self._forget(key)
            return
        self._count_restarts(key, observed.run.status)
        observed = replace(observed, run=await self._ports.inspect(observed.run))
        began = time.perf_counter()
        decision = self._decide(key, observed)
        decided = time.perf_counter()
        self._ports.metrics.passed(decision.status.phase, "decide", decided - began)
        if decision.wake_after is not None:
            # Before anything can fail: a deadline must not wait for a long back-off.
            self.queue.add(key, decision.wake_after)
        if not self._ports.leading():
            raise NotLeadingError
        await self._apply(key, observed.run, decision)
        self._ports.metrics.passed(decision.status.phase, "apply", time.perf_counter() - decided)

    def _decide(self, key: RunKey, observed: Observed) -> Decision:
        now = self._ports.now()
        decision = reconcile(observed, now, self._manifests)
        held = throttle(
            observed.run.status,
            decision,
            now=now,
            last=self._figures_at.get(key),
            interval=self._interval,
        )
        if held is not decision:
            self._ports.metrics.held()
        return held

    async def _apply(self, key: RunKey, run: RunView, decision: Decision) -> None:
        log = run_logger(_log, key.namespace, key.name)
        log = log.bind(attempt=decision.status.attempt, phase=decision.status.phase)

        def written(stored: Object) -> None:
            self._written(key, run, decision, stored)
            for event in decision.events:
                log.info(event.message, reason=event.reason, type=event.type.value)

        taken = await self._ports.applier.apply(run, decision, written)
        self._look_again(key, made=decision.fenced, taken=taken is not None)
        if decision.actions:
            log.info("applied", actions=[_words(action) for action in decision.actions])
        else:
            log.debug("reconciled", wake_after=decision.wake_after)

    def _look_again(self, key: RunKey, *, made: bool, taken: bool) -> None:
        """What was made, or was in the way, is seen at the next look, not told by a watch.

        Where it is not seen there either (somebody takes our labels off), looking at once would
        make it again without a pause.
        """
        if made or taken:
            self.queue.add(key, LOOK_AGAIN_SECONDS if key in self._made else 0.0)
        if made:
            self._made.add(key)
        else:
            self._made.discard(key)

    def _written(self, key: RunKey, run: RunView, decision: Decision, stored: Object) -> None:
        version = text(mapping(stored, "metadata"), "resourceVersion")
        if version != run.metadata.resource_version:
            self._ports.echoes.expect(key, version)
            self._ports.metrics.wrote()
        if decision.status.progress != run.status.progress or only_figures_differ(
            run.status, decision.status
        ):
            self._figures_at[key] = self._ports.now()

    def _count_restarts(self, key: RunKey, status: TrainingRunStatus) -> None:
        """Count what is seen in the status: a write whose answer was lost counts as well."""
        ended = status.restarts + status.disruptions
        more = ended - self._ended.get(key, ended)
        self._ended[key] = ended
        if more > 0 and status.history:
            self._ports.metrics.restarted(status.history[-1].reason, more)

    def _forget(self, key: RunKey) -> None:
        self._figures_at.pop(key, None)
        self._ended.pop(key, None)
        self._made.discard(key)
        self._ports.echoes.gone(key)


def _words(action: Action) -> str:
    """An action in a log line."""
    kind = f" {action.kind}" if isinstance(action, Create) else ""
    return f"{type(action).__name__}{kind} {action.name}"
