"""SAC on InvertedDoublePendulum-v5, no worse than SB3 at equal environment steps.

SB3's distribution stands in ``references/`` with its script, versions and machine.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
from pathlib import Path

import pytest
from rank_command import COMMAND, environment, write_attempt

REFERENCE = Path(__file__).parent / "references" / "sb3_inverted_double_pendulum.json"
BUDGET = 15_000
SOLVED = 9_000.0
SEEDS = (0, 1, 2)


def reference_steps_to_solve() -> list[int]:
    """Steps at which each of SB3's runs first evaluated to SOLVED; BUDGET + 1 if never."""
    runs = json.loads(REFERENCE.read_text())["runs"]
    return [
        next((p["env_steps"] for p in run["curve"] if p["return"] >= SOLVED), BUDGET + 1)
        for run in runs
    ]


def steps_to_solve(seed: int, folder: Path) -> int:
    """The same of ours, evaluated as often over as many episodes; the run stops there."""
    spec = {
        "algo": {"name": "sac"},
        "task": {"name": "inverted_double_pendulum"},
        "seed": seed,
        "training": {"totalEnvSteps": BUDGET},
        "evaluator": {"interval": 1_000, "episodes": 10, "target": SOLVED},
        "checkpoint": {"interval": BUDGET},
    }
    write_attempt(folder, spec)
    done = subprocess.run(
        COMMAND, cwd=folder, env=environment(), capture_output=True, text=True, check=True
    )
    evaluated = [
        (int(steps.replace(",", "")), float(mean.replace(",", "")))
        for steps, mean in re.findall(r"evaluation at step ([\d,]+): ([\d,.]+) \+/-", done.stdout)
    ]
    assert evaluated, done.stdout
    return next((steps for steps, mean in evaluated if mean >= SOLVED), BUDGET + 1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_three_seeds_solve_it_no_later_than_sb3(tmp_path: Path) -> None:
    theirs = reference_steps_to_solve()
    assert len(theirs) >= 10
    ours = []
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        ours.append(steps_to_solve(seed, folder))
    print(f"env steps to {SOLVED}: ours {ours}, SB3 {sorted(theirs)}")
    assert max(ours) <= BUDGET, "every seed solves it within the budget"
    assert statistics.median(ours) <= statistics.median(theirs)
