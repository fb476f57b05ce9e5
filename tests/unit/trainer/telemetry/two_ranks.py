"""One rank of a two-rank gloo group; run by test_reduction.py, prints what it reduced."""

from __future__ import annotations

import json
import math
import sys

import torch.distributed as dist
from memory_backend import MemoryBackend
from rank_group import count_collectives

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.metrics import MetricSchema, Owner
from drivetrain_trainer.telemetry.logger import TrainingLogger
from drivetrain_trainer.telemetry.reduction import RankDivergenceError


def main() -> None:
    store, rank = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    kept = MemoryBackend()
    logger = TrainingLogger(
        [kept] if rank == 0 else [],
        algo=AlgoName.SAC,
        rank=rank,
        world_size=2,
        rows_per_iteration=100,
    )
    collectives = count_collectives()
    reports: list[tuple[dict[str, float], dict[str, float]]] = [
        ({"Loss/actor": 1.0}, {"Loss/actor": 3.0}),
        ({"Perf/total_fps": 10.0}, {"Perf/total_fps": 20.0}),
        ({"Loss/actor": 1.0}, {"Loss/critic": 5.0}),
        ({"Perf/total_fps": 10.0}, {}),
        ({"Loss/actor": math.nan}, {"Loss/actor": 1.0}),
        ({"reward/b": 1.0, "reward/a": 2.0}, {"reward/a": 4.0, "reward/c": 8.0}),
        ({"reward/b": 1.0, "reward/a": 2.0}, {"reward/a": 4.0, "reward/c": 8.0}),
        ({}, {"reward/é": 1.0}),
        (
            {"Perf/iteration_time": 0.1, "Perf/learning_time": 0.1},
            {"Perf/iteration_time": 0.2, "Perf/learning_time": 0.1},
        ),
        (
            {"Perf/iteration_time": 0.1, "Perf/learner_inference_ms": 10.0},
            {"Perf/iteration_time": 0.1, "Perf/learner_inference_ms": 101.0},
        ),
    ]
    reduced, counts, shown = [], [], []
    for iteration, report in enumerate(reports):
        collectives.clear()
        record = logger.submit(by_owner(report[rank]), env_steps=iteration, iteration=iteration)
        shown.append(record.learner_rows_per_second)
        reduced.append({t: v for t, v in record.values.items() if t != "Train/iteration"})
        counts.append(len(collectives))
    try:
        logger.submit({Owner.LEARNER: {"Loss/actor": 1.0}}, env_steps=1, iteration=100 + rank)
        divergence = None
    except RankDivergenceError as error:
        divergence = str(error)
    stats = logger.close()
    print(
        json.dumps(
            {
                "reduced": reduced,
                "collectives": counts,
                "divergence": divergence,
                "rows": shown,
                "kept": [record.learner_rows_per_second for record in kept.records],
                "overfull": stats.overfull_timelines,
            }
        )
    )
    dist.destroy_process_group()


def by_owner(report: dict[str, float]) -> dict[Owner, dict[str, float]]:
    """A report's parts, as the schema has their owners."""
    parts: dict[Owner, dict[str, float]] = {}
    for tag, value in report.items():
        parts.setdefault(MetricSchema().lookup(tag).owner, {})[tag] = value
    return parts


if __name__ == "__main__":
    main()
