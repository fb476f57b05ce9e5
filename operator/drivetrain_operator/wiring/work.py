"""Everything that a leading replica runs: watches, workers, resync, in the order they need."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from drivetrain_operator.cluster.apply import Applier
from drivetrain_operator.cluster.dry_run import JobDryRun
from drivetrain_operator.cluster.keys import RunKey
from drivetrain_operator.cluster.reflector import Pace
from drivetrain_operator.cluster.resources import TRAINING_RUNS
from drivetrain_operator.cluster.store import Store
from drivetrain_operator.cluster.watching import child_reflectors
from drivetrain_operator.reconcile.fields import mapping, text
from drivetrain_operator.wiring.controller import Controller, Ports
from drivetrain_operator.wiring.echoes import Echoes
from drivetrain_operator.wiring.health import (
    Health,
    Limits,
    WatchState,
    queue_check,
    trouble_check,
    watch_check,
)
from drivetrain_operator.wiring.kopf_watch import RunsWatch
from drivetrain_operator.wiring.logs import get_logger
from drivetrain_operator.wiring.metrics import Gauges, Metrics
from drivetrain_operator.wiring.resync import Resync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from drivetrain_operator.cluster.client import Cluster
    from drivetrain_operator.cluster.events import EventRecorder
    from drivetrain_operator.manifests.settings import Settings as ManifestSettings
    from drivetrain_operator.reconcile.fields import Object
    from drivetrain_operator.reconcile.snapshot import RunView
    from drivetrain_operator.wiring.settings import OperatorSettings

DRAIN_SECONDS: Final = 10.0
"""How long passes that are in work may take to end when the operator stops."""
LEADING_SECONDS: Final = 0.5
"""How often it is asked meanwhile whether the Lease is still held."""
SILENCE_MARGIN: Final = 60.0
"""Seconds beyond the watches' own patience before their silence is a reason for a restart."""
_log = get_logger(__name__)


@dataclass(frozen=True)
class Surroundings:
    """What the work of a leader is set into."""

    cluster: Cluster
    recorder: EventRecorder
    metrics: Metrics
    health: Health
    leading: Callable[[], bool]
    """Whether this replica may write at this moment."""


class Work:
    """The work of a leading replica.

    Args:
        settings: The administrator's.
        around: What it is set into.
    """

    def __init__(self, settings: OperatorSettings, around: Surroundings) -> None:
        self._settings = settings
        self._around = around
        self._echoes = Echoes(apart=bool(settings.namespaces))
        self._store = Store(self._due)
        self._controller = Controller(
            Ports(
                runs=self._store,
                applier=Applier(around.cluster, self._store, around.recorder),
                inspect=_Inspection(JobDryRun(around.cluster), settings.manifests),
                echoes=self._echoes,
                metrics=around.metrics,
                leading=around.leading,
            ),
            settings.manifests,
            interval=timedelta(seconds=settings.progress_interval_seconds),
        )
        self._reflectors = child_reflectors(
            around.cluster,
            self._store,
            namespaces=settings.namespaces,
            pace=Pace(silence_s=float(settings.watch_silence_seconds)),
        )
        self._resync = Resync(
            around.cluster,
            settings.watched,
            self._store,
            self._echoes,
            self._controller.queue,
            every_s=settings.resync_seconds,
        )
        self._watch = RunsWatch(
            around.cluster,
            settings.namespaces,
            silence_s=settings.watch_silence_seconds,
            on_event=self._on_run,
        )
        self._report()

    async def run(self, taken_over: Callable[[], None]) -> None:
        """Work until cancelled, or until a part of it fails.

        Nothing is decided before all that there is was listed once.

        Args:
            taken_over: Called once kopf runs, which takes the process' signals for itself.

        Raises:
            Exception: what a part failed with.
        """
        followers = [asyncio.create_task(reflector.run()) for reflector in self._reflectors]
        workers: list[asyncio.Task[None]] = []
        watch: list[asyncio.Task[None]] = []
        try:
            await _until(asyncio.create_task(self._learn()), followers)
            followers.append(asyncio.create_task(self._resync.run()))
            workers += [
                asyncio.create_task(self._controller.work()) for _ in range(self._settings.workers)
            ]
            self._echoes.begin()
            await self._watch.start()
            watch.append(asyncio.create_task(self._watch.run()))
            taken_over()
            await _until(watch[0], [*followers, *workers])
            raise RuntimeError("the watch of TrainingRuns ended by itself")
        finally:
            await self._end(workers, followers, watch)

    async def _learn(self) -> None:
        await self._resync.first()
        for reflector in self._reflectors:
            await reflector.synced.wait()
        _log.info("synced", runs=len(self._store))

    async def _end(
        self,
        workers: list[asyncio.Task[None]],
        followers: list[asyncio.Task[None]],
        watch: list[asyncio.Task[None]],
    ) -> None:
        """Let passes end, then stop the rest; kopf last.

        Without the Lease passes are broken off: another replica may work already.
        """
        self._controller.queue.close()
        await _drained(workers, self._around.leading)
        for task in (*workers, *followers):
            task.cancel()
        await asyncio.gather(*workers, *followers, return_exceptions=True)
        self._watch.stop()
        await asyncio.gather(*watch, return_exceptions=True)

    def _due(self, key: RunKey) -> None:
        self._controller.queue.add(key)

    def _on_run(self, obj: Object, gone: bool) -> None:  # noqa: FBT001 - the watch's callback
        meta = mapping(obj, "metadata")
        key = RunKey(text(meta, "namespace"), text(meta, "name"))
        if gone:
            self._echoes.gone(key)
            self._store.delete(TRAINING_RUNS, obj)
        else:
            self._echoes.seen(key, text(meta, "resourceVersion"))
            self._store.put(TRAINING_RUNS, obj)

    def _watches(self) -> Iterator[WatchState]:
        now = time.monotonic()
        for reflector in self._reflectors:
            yield WatchState(
                reflector.resource.plural, now - reflector.last_alive, reflector.trouble
            )
        troubles = (reflector.trouble for reflector in self._reflectors)
        yield WatchState(
            TRAINING_RUNS.plural, self._echoes.silence(), next(filter(None, troubles), "")
        )

    def _report(self) -> None:
        """Tell health and metrics how it stands."""
        queue = self._controller.queue
        limits = Limits(
            stuck_seconds=self._settings.stuck_seconds,
            silent_seconds=self._settings.watch_silence_seconds + SILENCE_MARGIN,
        )
        health = self._around.health
        since_pass = self._controller.since_pass
        health.add(live=queue_check(queue.oldest_wait, queue.oldest_work, since_pass, limits))
        health.add(live=watch_check(self._watches, limits), ready=trouble_check(self._watches))
        health.add(ready=self._unsynced)
        self._around.metrics.watch(
            Gauges(
                phases=self._store.phases,
                queue_depth=lambda: len(queue),
                queue_delayed=lambda: queue.delayed,
                oldest_wait=queue.oldest_wait,
                oldest_work=queue.oldest_work,
                watches=lambda: ((w.resource, w.silence) for w in self._watches()),
                events_dropped=lambda: self._around.recorder.dropped,
            )
        )

    def _unsynced(self) -> Iterable[str]:
        if self._resync.trouble:
            yield self._resync.trouble
        for reflector in self._reflectors:
            if not reflector.synced.is_set():
                yield f"{reflector.resource.plural} are not listed yet"


async def _drained(workers: Iterable[asyncio.Task[None]], leading: Callable[[], bool]) -> None:
    """Wait until the workers ended, for so long at most, and only while nobody else may work."""
    busy = {worker for worker in workers if not worker.done()}
    ends = time.monotonic() + DRAIN_SECONDS
    while busy and leading() and (left := ends - time.monotonic()) > 0:
        _, busy = await asyncio.wait(busy, timeout=min(left, LEADING_SECONDS))


async def _until(goal: asyncio.Task[None], others: Iterable[asyncio.Task[None]]) -> None:
    """Wait for `goal`.

    Raises:
        Exception: what it or one of the others failed with.
        RuntimeError: one of the others, which are to go on for ever, ended.
    """
    try:
        done, _ = await asyncio.wait((goal, *others), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if goal not in done:
            raise RuntimeError("a part of the operator ended by itself")
    finally:
        if not goal.done():
            goal.cancel()


class _Inspection:
    """Adds the API server's own refusals of a run's Job to those of the spec."""

    def __init__(self, dry_run: JobDryRun, manifests: ManifestSettings) -> None:
        self._dry_run = dry_run
        self._manifests = manifests

    async def __call__(self, run: RunView) -> RunView:
        found = await self._dry_run.violations(run, self._manifests)
        return replace(run, refusals=(*run.refusals, *found)) if found else run
