"""What importing the contract costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("yaml", "torch", "numpy", "kopf", "kubernetes", "mujoco", "structlog", "psutil")


@pytest.mark.parametrize(
    "module",
    [
        "drivetrain_api",
        "drivetrain_api.trainingrun",
        "drivetrain_api.compose",
        "drivetrain_api.overrides",
        "drivetrain_api.metrics",
        "drivetrain_api.budget",
        "drivetrain_api.crd",
        "drivetrain_api.artifacts.run_config",
        "drivetrain_api.artifacts.run_summary",
        "drivetrain_api.timings.store",
    ],
)
def test_importing_the_contract_pulls_pydantic_alone(module: str) -> None:
    program = (
        f"import sys, {module}\nprint(*sorted(name for name in {HEAVY!r} if name in sys.modules))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.split() == []
