"""One rank of a two-rank gloo group; run by test_reduction.py, prints what it reduced."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch.distributed as dist

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.metrics import MetricSchema, Owner
from drivetrain_trainer.telemetry.backends.base import BackendCapabilities
from drivetrain_trainer.telemetry.logger import TrainingLogger
from drivetrain_trainer.telemetry.record import Record
from drivetrain_trainer.telemetry.reduction import RankDivergenceError


class Kept:
    name = "kept"
    capabilities = BackendCapabilities()
    details: Mapping[str, str] = MappingProxyType({})
    records: list[Record] = []  # noqa: RUF012 - one instance a process

    def open(self) -> None:
        pass

    def write(self, record: Record) -> None:
        self.records.append(record)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def main() -> None:
    store, rank = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    logger = TrainingLogger(
        [Kept()] if rank == 0 else [],
        algo=AlgoName.SAC,
        rank=rank,
        world_size=2,
        rows_per_iteration=100,
    )
    collectives = _count_collectives()
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
                "kept": [record.learner_rows_per_second for record in Kept.records],
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


def _count_collectives() -> list[str]:
    calls: list[str] = []
    for name in ("all_reduce", "all_gather"):
        setattr(dist, name, _counting(getattr(dist, name), name, calls))
    return calls


def _counting(function: Any, name: str, calls: list[str]) -> Any:
    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return function(*args, **kwargs)

    return counted


if __name__ == "__main__":
    main()
