"""Overlap of collector and learner: iteration wall over the busier side.

Inference and hand-over count on both sides, waiting on neither.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import product
from typing import Any

from tests.bench.result import Result, against
from tests.bench.training_run import train

RUNS = 3
CASES: dict[str, tuple[float, dict[str, Any]]] = {
    "learner_bound": (
        1.10,
        {"task": {"name": "half_cheetah"}, "training": {"totalEnvSteps": 3000}},
    ),
    "collector_bound": (
        1.15,
        {
            "task": {"name": "humanoid"},
            "algo": {"name": "sac", "numEnvs": 64, "updatesPerStep": 1, "learningStarts": 10},
            "training": {"totalEnvSteps": 64 * 500},
        },
    ),
}


def measure() -> list[Result]:
    """Each case's median wall against its busier side."""
    results = []
    for case, (limit, spec) in CASES.items():
        walls, busiest = [], []
        for _ in range(RUNS):
            wall, busy = sides(spec)
            walls.append(wall)
            busiest.append(busy)
        results.append(
            against(
                f"overlap_{case}",
                "iteration wall, ms",
                walls,
                busiest,
                reference_name="busier side",
                target=limit,
                better="lower",
            )
        )
    return results


GRID_TASKS: dict[str, int] = {"half_cheetah": 128, "humanoid": 64}
"""Cheap and dear environments, so many of each: a tick takes 3 ms at least."""
GRID_UPDATES = 1
GRID_TICKS = 250


@dataclass(frozen=True)
class Cell:
    """One point of the grid, and its two sides, ms."""

    task: str
    batch: int
    capacity: int
    wall: float
    collector: float
    learner: float

    @property
    def limit(self) -> float:
        """The greatest ratio of the wall to the busier side that is asked for."""
        if self.learner >= self.collector or self.capacity > 1:
            return 1.10
        return 1.15

    def result(self) -> Result:
        """Against the busier side."""
        return against(
            f"overlap_{self.task}_b{self.batch}_c{self.capacity}",
            "iteration wall, ms",
            [self.wall],
            [max(self.collector, self.learner)],
            reference_name="learner" if self.learner >= self.collector else "collector",
            target=self.limit,
            better="lower",
        )


def grid() -> list[Result]:
    """The overlap over environments, batch and capacity; prints the two sides of each point.

    ``BENCH_GRID=wide`` measures more batches and capacities.
    """
    wide = os.environ.get("BENCH_GRID") == "wide"
    batches = (64, 256, 1024, 4096) if wide else (128, 1024)
    capacities = (1, 2, 4) if wide else (1, 2)
    cells = [_cell(*point) for point in product(GRID_TASKS, batches, capacities)]
    print("\n| Task | Envs | Batch | Capacity | Wall | Collector | Learner | Against capacity 1 |")
    print("|---|---|---|---|---|---|---|---|")
    base = {(cell.task, cell.batch): cell.wall for cell in cells if cell.capacity == 1}
    for cell in cells:
        gain = base[cell.task, cell.batch] / cell.wall
        print(
            f"| {cell.task} | {GRID_TASKS[cell.task]} | {cell.batch} | {cell.capacity} | "
            f"{cell.wall:.2f} ms | {cell.collector:.2f} ms | {cell.learner:.2f} ms | {gain:.3f} |"
        )
    print()
    return [cell.result() for cell in cells]


def _cell(task: str, batch: int, capacity: int) -> Cell:
    envs = GRID_TASKS[task]
    figures = _figures(
        {
            "task": {"name": task},
            "algo": {
                "name": "sac",
                "numEnvs": envs,
                "batchSize": batch,
                "updatesPerStep": GRID_UPDATES,
                "learningStarts": 20,
            },
            "training": {
                "totalEnvSteps": envs * GRID_TICKS,
                "logInterval": 10,
                "inferenceSlotCapacity": capacity,
            },
        }
    )
    return Cell(task, batch, capacity, *figures)


def sides(spec: dict[str, Any]) -> tuple[float, float]:
    """Iteration wall and the busier side of it, ms."""
    wall, collector, learner = _figures(spec)
    return wall, max(collector, learner)


def _figures(spec: dict[str, Any]) -> tuple[float, float, float]:
    """Iteration wall, the collector's side and the learner's, ms."""
    found = train(
        {
            "algo": {"name": "sac"},
            "evaluator": {"interval": None},
            "checkpoint": {"interval": 10_000_000},
            **spec,
        }
    )
    wall = 1e3 * found["Perf/iteration_time"]
    handed = found["Perf/learner_inference_ms"] + found["Perf/learner_collector_release_ms"]
    learner = wall - found["Perf/learner_collector_wait_ms"]
    cycle = sum(
        found[f"Perf/collector_{phase}_ms"]
        for phase in (
            "inference_request",
            "env_step",
            "transition_extract",
            "replay_write",
            "metrics_publish",
        )
    )
    return wall, cycle + handed, learner
