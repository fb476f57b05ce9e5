"""Data-parallel scaling: SAC on HalfCheetah by 1, 2, 4... ranks of this machine.

Each rank keeps its environments, batch and updates, so that N ranks should take N times the
steps of one. The runs are made anew and lie in ``build/bench/dp_scaling/<ranks>``; what is
there from before is deleted. Their figures are read as any reader of a run does: canonical
tags of the current metric schema, or nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tests.bench.result import FOLDER, Result, against
from tests.support.rank_command import environment, write_attempt

from drivetrain_trainer.analysis.diagnosis import diagnose
from drivetrain_trainer.analysis.findings import Setup
from drivetrain_trainer.analysis.runs import RunFolder
from drivetrain_trainer.analysis.window import Span, window_of

RUNS = 3
MOST_RANKS = 8
ITERATIONS = 400
TIMEOUT_SECONDS = 900
EFFICIENCY = 0.7
"""Least share of N times one rank's steps, where each rank has a CPU or a GPU of its own."""
SYNC_SHARE = 0.25
"""Most of an iteration that a rank may spend in all-reduces."""
EVERYTHING = Span(reports=1_000_000)


@dataclass(frozen=True)
class Figures:
    """One run, after its warm-up."""

    ranks: int
    steps_per_second: float
    """Environment steps over all ranks."""
    rows_per_second: float
    """Replay rows over all ranks."""
    iteration_ms: float
    sync_ms: float
    """Gradient all-reduces of an iteration, a rank."""


def measure() -> list[Result]:
    """Each number of ranks against as many times one rank's throughput, in turn."""
    counts = rank_counts()
    found: dict[int, list[Figures]] = {ranks: [] for ranks in counts}
    for _ in range(RUNS):
        for ranks in counts:
            found[ranks].append(train(ranks))
    write_table(found)
    return [result for ranks in counts if ranks > 1 for result in results(ranks, found)]


def rank_counts() -> list[int]:
    """1, 2, 4... as many as the machine has GPUs, or else CPUs."""
    places = torch.cuda.device_count() or len(os.sched_getaffinity(0))
    counts = [1, 2]
    while counts[-1] * 2 <= min(places, MOST_RANKS):
        counts.append(counts[-1] * 2)
    return counts


def train(ranks: int, *, iterations: int = ITERATIONS, root: Path = FOLDER) -> Figures:
    """Train anew with so many ranks, and read the run."""
    folder = (root / "dp_scaling" / str(ranks)).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_attempt(folder, spec(ranks, iterations))
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={ranks}", "-m", "drivetrain_trainer.train", "--spec", "run.json"),
    ]
    subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        check=True,
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
    )
    return figures(folder / "run", ranks)


def spec(ranks: int, iterations: int) -> dict[str, Any]:
    """The same work a rank, whatever their number."""
    return {
        "algo": {"name": "sac", "learningStarts": 10},
        "task": {"name": "half_cheetah"},
        "training": {"iterations": iterations, "logDir": "run", "logger": "tensorboard"},
        "topology": {"ranksPerNode": ranks},
        "evaluator": {"interval": None},
        "checkpoint": {"interval": 1_000_000_000},
    }


def figures(run: Path, ranks: int) -> Figures:
    """What a run measured.

    Raises:
        SchemaError: it is not a run of the current metric schema.
    """
    folder = RunFolder.open(run)
    config = folder.config
    assert config is not None, run
    assert config.run.world_size == ranks, run
    window = window_of(folder.metrics().by_tag, EVERYTHING)
    diagnosis = diagnose(window, Setup.of(config))
    assert not window.only_warm_up, run
    assert diagnosis.learner is not None, run
    return Figures(
        ranks=ranks,
        steps_per_second=diagnosis.steps_per_second or 0.0,
        rows_per_second=diagnosis.rows_per_second or 0.0,
        iteration_ms=diagnosis.learner.wall_ms,
        sync_ms=window.means.get("Perf/dp_gradient_sync_ms_per_rank", 0.0),
    )


def results(ranks: int, found: dict[int, list[Figures]]) -> list[Result]:
    """Throughput against the ideal, and what the all-reduces take."""
    mine = found[ranks]
    crowded = ranks > (torch.cuda.device_count() or len(os.sched_getaffinity(0)))
    return [
        against(
            f"dp_scaling_{ranks}",
            f"steps/s of {ranks} ranks, the same work each",
            [one.steps_per_second for one in mine],
            [ranks * one.steps_per_second for one in found[1]],
            reference_name=f"{ranks} times one rank",
            target=0.0 if crowded else EFFICIENCY,
        ),
        against(
            f"dp_scaling_{ranks}_sync",
            "gradient all-reduces of an iteration, ms a rank",
            [one.sync_ms for one in mine],
            [one.iteration_ms for one in mine],
            reference_name="iteration",
            target=SYNC_SHARE,
            better="lower",
        ),
    ]


def write_table(found: dict[int, list[Figures]]) -> None:
    """Print the medians by number of ranks, and keep them in ``build/bench/dp_scaling.json``."""
    rows = [row(runs, found[1]) for runs in found.values()]
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "dp_scaling.json").write_text(json.dumps(rows, indent=2) + "\n")
    print("| Ranks | Steps/s | Rows/s | Iteration, ms | All-reduce, ms a rank | Efficiency |")
    print("|---|---|---|---|---|---|")
    for one in rows:
        print(
            f"| {one['ranks']:.0f} | {one['steps_per_second']:.4g} | {one['rows_per_second']:.4g} "
            f"| {one['iteration_ms']:.3g} | {one['sync_ms']:.3g} | {one['efficiency']:.2f} |",
            flush=True,
        )


def row(runs: Sequence[Figures], alone: Sequence[Figures]) -> dict[str, float]:
    """Medians of the runs with one number of ranks; efficiency is against one rank's."""
    medians = {
        name: statistics.median(asdict(one)[name] for one in runs) for name in asdict(runs[0])
    }
    single = statistics.median(one.steps_per_second for one in alone)
    efficiency = medians["steps_per_second"] / (medians["ranks"] * single)
    return {**medians, "efficiency": efficiency}
