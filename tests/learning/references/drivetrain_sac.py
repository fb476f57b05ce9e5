"""Make a reference distribution of our own SAC: run a suite and keep its curves.

::

    python tests/learning/references/drivetrain_sac.py hopper

The runs stay below ``build/learning``: stopped in between, the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

REFERENCES = Path(__file__).parent
sys.path.insert(0, str(REFERENCES.parents[1] / "support"))

from learning_suite import SUITES, run_suite  # noqa: E402 - found in that folder

PACKAGES = ("drivetrain", "torch", "gymnasium", "mujoco", "numpy")


def main() -> None:
    """Run the suite of a task and write its reference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=sorted(path.stem for path in SUITES.glob("*.yaml")))
    task = parser.parse_args().task
    folder = Path("build/learning").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    curves = run_suite(task, folder)
    document = {
        "task": task,
        "algorithm": f"drivetrain's sac at the preset of the task, {SUITES.name}/{task}.yaml",
        "steps": curves[0].points[-1][0],
        "versions": {name: version(name) for name in PACKAGES},
        "machine": {"processor": platform.processor() or platform.machine(), "threads": 1},
        "runs": [
            {
                "seed": curve.seed,
                "curve": [{"env_steps": step, "return": mean} for step, mean in curve.points],
            }
            for curve in curves
        ],
    }
    output = REFERENCES / f"drivetrain_{task}.json"
    output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
