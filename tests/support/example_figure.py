"""The figure in the guide, drawn by ``drivetrain plot`` from made-up runs.

Usage: ``python -m tests.support.example_figure [OUT]``
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
from click.testing import CliRunner
from tests.support.measured_run import make_measured_run

from drivetrain_trainer.cli.plot import plot

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "plot.png"
SEEDS, REPORTS = 4, 300
TARGET = 24_000


def main(out: Path) -> None:
    """Draw it."""
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(SEEDS):
            made_up(Path(folder) / "logs" / f"seed-{seed}", seed)
        result = CliRunner().invoke(plot, [folder, "--smooth", "5", "-o", str(out)])
    if result.exit_code:
        raise RuntimeError(result.output)


def made_up(folder: Path, seed: int) -> Path:
    """A run whose curves look like those of a short HalfCheetah."""
    generator = np.random.default_rng(seed)
    midway, best = generator.normal(130, 18), generator.normal(4600, 420)
    rows = []
    for number in range(REPORTS):
        done = 1 / (1 + np.exp(-(number - midway) / 38))
        learning = 0.0 if number < 8 else generator.normal(19.5, 0.5)
        wait = generator.gamma(4.0, 0.35) if number >= 8 else 9.0
        wall = 3.2 + learning + wait
        row = {
            "Perf/iteration_time": wall / 1e3,
            "Perf/learning_time": learning / 1e3,
            "Perf/learner_collector_wait_ms": wait,
            "Perf/learner_inference_ms": 1.3,
            "Perf/learner_collector_release_ms": 0.2,
            "Perf/learner_replay_batch_wait_ms": 0.3,
            "Perf/learner_replay_sample_ms": 0.6,
            "Perf/collector_inference_request_ms": 0.3,
            "Perf/collector_learner_action_wait_ms": max(wall - 15.5, 1.0),
            "Perf/collector_env_step_ms": 13.0,
            "Perf/collector_transition_extract_ms": 0.6,
            "Perf/collector_replay_write_ms": 1.2,
            "Perf/collector_metrics_publish_ms": 0.4,
            "Perf/total_fps": 8000 / wall,
            "Train/mean_reward": best * done - 180 + generator.normal(0, 60),
            "Train/iteration": 10.0 * (number + 1),
        }
        if number % 30 == 29:
            row["eval-rollout/reward"] = best * done + generator.normal(0, 150)
        rows.append({tag: float(value) for tag, value in row.items()})
    return make_measured_run(
        folder, rows, spec={"seed": seed, "training": {"total_env_steps": TARGET}}
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else PICTURE)
