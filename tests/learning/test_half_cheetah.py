"""SAC on HalfCheetah-v5 at 100,000 environment steps: the longer learning trial."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from rank_command import COMMAND, environment, write_attempt

from drivetrain_api.artifacts.run_summary import RunSummary

LEAST_RETURN = 2_000.0
"""A policy that gallops; one that only falls forward stays below 1,000."""


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_it_gallops_after_100k_steps(tmp_path: Path) -> None:
    spec = {
        "algo": {"name": "sac"},
        "task": {"name": "half_cheetah"},
        "training": {"totalEnvSteps": 100_000},
        "evaluator": {"interval": 10_000, "episodes": 5},
    }
    write_attempt(tmp_path, spec)
    subprocess.run(COMMAND, cwd=tmp_path, env=environment(), capture_output=True, check=True)
    (path,) = tmp_path.glob("logs/sac/half_cheetah/*/run_summary.json")
    summary = RunSummary.from_json(path.read_text())
    print(f"evaluated return {summary.evaluated_return}, best {summary.best_evaluated_return}")
    assert summary.best_evaluated_return is not None
    assert summary.best_evaluated_return >= LEAST_RETURN
