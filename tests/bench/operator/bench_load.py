"""Runs that come steadily, and a thousand at once beside a bare client."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Final

from tests.bench.operator.common import held, wait_running
from tests.bench.operator.load import Load, manifest, post_of, posts_of_children
from tests.bench.operator.passes import Passes
from tests.bench.operator.playground import Playground
from tests.bench.result import Result, against

RATE: Final = 10
"""Runs created each second."""
SECONDS: Final = 60
PACED_ROUNDS: Final = 3
CREATE_TO_JOB_LIMIT: Final = 1.0
"""Seconds, at the 99th percentile."""

BURST: Final = 1000
BURST_ROUNDS: Final = 3
BURST_LIMIT: Final = 60.0
"""Seconds."""
BURST_RATIO: Final = 3.0
_PATIENCE_S: Final = 900.0


def paced() -> list[Result]:
    """From a run's creation to its Job at 10 runs a second; passes by phase meanwhile."""
    rounds = []
    passes = Passes()
    for _ in range(PACED_ROUNDS):
        with Playground() as ground:
            operator = ground.operator().start()
            rounds.append(sorted(asyncio.run(_paced(ground))))
            wait_running(operator, RATE * SECONDS)
            passes.add(operator.metrics())
    middle = [statistics.median(waits) for waits in rounds]
    slowest = [waits[round(0.99 * (len(waits) - 1))] for waits in rounds]
    what = f"seconds from creation to Job, {RATE} runs/s for {SECONDS} s"
    return [
        *(
            held(f"operator_create_to_job_{name}", f"{what}, {name}", figures, CREATE_TO_JOB_LIMIT)
            for name, figures in (("p50", middle), ("p99", slowest))
        ),
        *passes.results(),
    ]


async def _paced(ground: Playground) -> list[float]:
    numbers = range(RATE * SECONDS)
    created: dict[str, float] = {}
    async with (
        Load.on(ground.plane) as load,
        load.jobs(len(numbers)) as arrivals,
        asyncio.TaskGroup() as group,
    ):
        began = time.perf_counter()
        for number in numbers:
            await asyncio.sleep(began + number / RATE - time.perf_counter())
            item = manifest(number)
            created[item["metadata"]["name"]] = time.perf_counter()
            group.create_task(load.create(post_of(item)))
        await asyncio.wait_for(arrivals.complete.wait(), _PATIENCE_S)
    return [arrivals.seen[name] - at for name, at in created.items()]


def burst() -> list[Result]:
    """A thousand runs at once, against a bare client that creates the same objects."""
    ours, bare = [], []
    for _ in range(BURST_ROUNDS):
        with Playground() as ground:
            bare.append(asyncio.run(_bare(ground)))
        with Playground() as ground:
            ground.operator().start()
            ours.append(asyncio.run(_burst(ground)))
    what = f"seconds until {BURST} runs that came at once have their Jobs"
    return [
        held("operator_burst", what, ours, BURST_LIMIT),
        against(
            "operator_burst_ratio",
            what,
            ours,
            bare,
            reference_name="a bare client creating the same seven objects a run",
            target=BURST_RATIO,
            better="lower",
        ),
    ]


async def _burst(ground: Playground) -> float:
    async with Load.on(ground.plane) as load, load.jobs(BURST) as arrivals:
        began = time.perf_counter()
        await load.create_runs(range(BURST))
        await asyncio.wait_for(arrivals.complete.wait(), _PATIENCE_S)
        return max(arrivals.seen.values()) - began


async def _bare(ground: Playground) -> float:
    async with Load.on(ground.plane) as load:
        runs = await load.create_runs(range(BURST))
        groups = [posts_of_children(run) for run in runs]
        began = time.perf_counter()
        await load.create_in_order(groups)
        return time.perf_counter() - began
