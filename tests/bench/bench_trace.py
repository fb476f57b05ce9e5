"""What tracing costs: iteration wall with a trace beside that without, in paired runs."""

from __future__ import annotations

from typing import Any

from tests.bench.result import Result, against
from tests.bench.training_run import train

RUNS = 5
LIMIT = 1.03
ENV_STEPS = 1200
CASES: dict[str, dict[str, Any]] = {
    "spans": {"traceEnabled": True},
    "thread_time": {"traceEnabled": True, "traceThreadTime": True},
}


def measure() -> list[Result]:
    """HalfCheetah at its preset; plain and traced runs in turn, so that both see the same load."""
    plain: list[float] = []
    traced: dict[str, list[float]] = {case: [] for case in CASES}
    for run in range(RUNS):
        cases = [("", {}), *CASES.items()]
        for case, training in cases if run % 2 else reversed(cases):
            (traced[case] if case else plain).append(iteration_ms(training))
    return [
        against(
            f"trace_{case}",
            "iteration wall, ms, HalfCheetah",
            walls,
            plain,
            reference_name="no trace",
            target=LIMIT,
            better="lower",
        )
        for case, walls in traced.items()
    ]


def iteration_ms(training: dict[str, Any]) -> float:
    """Median iteration wall of a run."""
    figures = train(
        {
            "algo": {"name": "sac", "learningStarts": 10},
            "task": {"name": "half_cheetah"},
            "training": {"totalEnvSteps": ENV_STEPS, **training},
            "evaluator": {"interval": None},
            "checkpoint": {"interval": 10_000_000},
        }
    )
    return 1e3 * figures["Perf/iteration_time"]
