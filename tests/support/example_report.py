"""The report in the guide: two algorithms' settings on two tasks, from made-up runs.

Usage: ``python -m tests.support.example_report [PICTURE] [REPORT]``
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from click.testing import CliRunner
from tests.support.compared_runs import MadeUp, write_seeds, write_timings

from drivetrain_trainer.cli.compare import compare

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "compare.png"
SEEDS: Final = range(8)


def main(picture: Path | None, report: Path | None = None, seeds: Sequence[int] = SEEDS) -> None:
    """Draw the figures, and write the report, as far as they are wanted."""
    files = {"--plot": picture, "--output": report}
    wanted = [part for name, path in files.items() if path for part in (name, str(path.resolve()))]
    sides = ["one-critic=suites/base", "two-critics=suites/new", "--threshold", "hopper=2500"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write(Path(), seeds)
        result = CliRunner().invoke(compare, [*sides, *wanted])
    if result.exit_code:
        raise RuntimeError(result.output)


def write(folder: Path, seeds: Sequence[int]) -> None:
    """Suites `base` and `new` below the folder, each on two tasks."""
    for name, midway, best, lead in (("base", 0.45, 1.0, 0.0), ("new", 0.36, 1.12, 1.0)):
        for task, top in (("hopper", 2600.0), ("half_cheetah", 5200.0)):
            root = folder / "suites" / name
            write_seeds(root / "sac" / task, _runs(midway, best * top, lead), seeds, task)
            write_timings(
                root / "sac" / task,
                {
                    "sac_train": [310.0 - 60 * lead + 4 * seed for seed in seeds],
                    "checkpoint_save": [0.8] * len(seeds),
                    "evaluation": [12.0] * len(seeds),
                },
                cpu="AMD EPYC 9554",
                gpu="NVIDIA H200" if lead else "NVIDIA L40S",
            )
    failed = folder / "suites" / "new" / "sac" / "hopper" / "run_8_seed_8"
    MadeUp(
        700.0,
        reports=11,
        spec={"task": {"name": "hopper"}},
        summary={
            "status": "failed",
            "error_type": "NonFiniteError",
            "error": "critic loss is NaN at environment step 22,000",
        },
    ).write(failed, 8)


def _runs(midway: float, best: float, lead: float):  # noqa: ANN202 - a maker of runs by seed
    def made(seed: int) -> MadeUp:
        generator = np.random.default_rng(100 + seed)
        return MadeUp(
            best=best * generator.normal(1.0, 0.09),
            midway=midway + generator.normal(0, 0.03),
            noise=0.012 * best,
            seconds=6.2 - 1.2 * lead,
            spec={
                "algo": {"name": "sac", "critic_learning_rate": 1e-3 if lead else 3e-4},
                "experiment": {"suite": "s", "run_idx": seed, "invocation": "i"},
            },
        )

    return made


if __name__ == "__main__":
    main(
        Path(sys.argv[1]) if sys.argv[1:] else PICTURE,
        Path(sys.argv[2]) if sys.argv[2:] else None,
    )
