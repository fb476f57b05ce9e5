"""Records and exports of many threads and tasks at once: none lost, none counted twice."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from drivetrain_trainer import stats
from drivetrain_trainer.stats import ReduceType, StatsTracker

THREADS, ROUNDS = 8, 400


def test_every_record_is_in_exactly_one_export() -> None:
    tracker = StatsTracker()
    running = threading.Event()
    running.set()
    exports: list[dict[str, float]] = []

    def record(number: int) -> None:
        # Masks differ between the threads: one that took another's would count wrongly.
        mask = torch.arange(THREADS) <= number
        for step in range(ROUNDS):
            with tracker.scope("work"):
                tracker.scalar(one=1.0, number=float(step))
                tracker.denominator(n=mask)
                tracker.stat("n", ReduceType.SUM, full=torch.ones(THREADS))
                tracker.stat_compact("n", ReduceType.SUM, compact=torch.ones(THREADS))

    def export() -> None:
        while running.is_set():
            exports.append(tracker.export())

    exporters = [threading.Thread(target=export) for _ in range(2)]
    for thread in exporters:
        thread.start()
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(record, number) for number in range(THREADS)]
        for future in futures:
            future.result()
    running.clear()
    for thread in exporters:
        thread.join()
    exports.append(tracker.export())
    totals: Counter[str] = Counter()
    for exported in exports:
        for key in ("work/n", "work/full", "work/compact", "work/one__count"):
            totals[key] += int(exported.get(key, 0))
        totals["number"] += round(
            exported.get("work/number", 0.0) * exported.get("work/number__count", 0.0)
        )
    elements = ROUNDS * sum(range(1, THREADS + 1))
    assert totals == {
        "work/n": elements,
        "work/full": elements,
        "work/compact": elements,
        "work/one__count": THREADS * ROUNDS,
        "number": THREADS * sum(range(ROUNDS)),
    }
    assert len(exports) > 1


def test_tasks_that_interleave_keep_their_scopes_and_masks() -> None:
    tracker = StatsTracker()

    async def update(name: str, valid: int) -> None:
        with tracker.scope(name):
            tracker.denominator(n=torch.arange(4) < valid)
            await asyncio.sleep(0)
            tracker.stat("n", ReduceType.SUM, x=torch.ones(4))

    async def shared(valid: int) -> None:
        tracker.denominator(n=torch.arange(4) < valid)
        await asyncio.sleep(0)
        tracker.stat("n", ReduceType.SUM, **{f"x{valid}": torch.ones(4)})

    async def main() -> None:
        await asyncio.gather(update("a", 1), update("b", 3), *(shared(v) for v in range(4)))

    asyncio.run(main())
    assert tracker.export() == {
        "a/n": 1.0,
        "a/x": 1.0,
        "b/n": 3.0,
        "b/x": 3.0,
        "n": 6.0,
        "x0": 0.0,
        "x1": 1.0,
        "x2": 2.0,
        "x3": 3.0,
    }


def test_a_task_may_record_under_its_parents_mask_and_scope() -> None:
    tracker = StatsTracker()

    async def child() -> None:
        tracker.stat("n", ReduceType.SUM, x=torch.ones(2))

    async def main() -> None:
        with tracker.scope("update"):
            tracker.denominator(n=torch.tensor([True, False]))
            await asyncio.gather(child(), child())

    asyncio.run(main())
    assert tracker.export() == {"update/n": 1.0, "update/x": 2.0}


def test_a_new_thread_begins_outside_every_scope_and_finds_masks_of_others() -> None:
    tracker = StatsTracker()
    with tracker.scope("a"):
        tracker.denominator(n=torch.tensor([True, True]))
        thread = threading.Thread(target=lambda: tracker.scalar(x=1.0))
        thread.start()
        thread.join()
    with tracker.scope("a"), ThreadPoolExecutor(1) as pool:
        pool.submit(_stat_in_scope, tracker).result()
    assert tracker.export() == {"x": 1.0, "x__count": 1.0, "a/n": 2.0, "a/y": 2.0}


def _stat_in_scope(tracker: StatsTracker) -> None:
    with tracker.scope("a"):
        tracker.stat("n", ReduceType.SUM, y=torch.ones(2))


def test_masks_go_with_the_threads_that_declared_them() -> None:
    tracker = StatsTracker()
    thread = threading.Thread(target=lambda: tracker.denominator(n=torch.tensor([True])))
    thread.start()
    thread.join()
    del thread
    with pytest.raises(stats.UnknownDenominatorError):
        tracker.stat("n", x=torch.ones(1))


def test_a_signal_handler_may_record_while_its_thread_does() -> None:
    tracker = StatsTracker()
    former = signal.signal(signal.SIGALRM, lambda *_: tracker.scalar(handled=1.0))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    handled = 0.0
    try:
        while handled < 20:
            for _ in range(100):
                tracker.scalar(recorded=1.0)
            exported = tracker.export()
            handled += exported.get("handled__count", 0.0)
            assert exported["recorded__count"] == 100
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def test_trackers_are_made_once_however_many_ask() -> None:
    barrier = threading.Barrier(THREADS)

    def ask() -> StatsTracker:
        barrier.wait()
        tracker = stats.get("rollout")
        tracker.scalar(a=1.0)
        return tracker

    with ThreadPoolExecutor(THREADS) as pool:
        found = {id(future.result()) for future in [pool.submit(ask) for _ in range(THREADS)]}
    assert len(found) == 1
    assert stats.export_all() == {"rollout/a": 1.0, "rollout/a__count": float(THREADS)}
