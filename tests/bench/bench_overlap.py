"""Overlap of collector and learner: iteration wall over the busier side.

Inference and hand-over count on both sides, waiting on neither.
"""

from __future__ import annotations

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


def sides(spec: dict[str, Any]) -> tuple[float, float]:
    """Iteration wall and the busier side of it, ms."""
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
    return wall, max(learner, cycle + handed)
