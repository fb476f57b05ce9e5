"""Run one of the project's own suites and read its curves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from learning_curves import Curve, read_run

from drivetrain_api.artifacts.suite_record import SUITE_RECORD, MemberState, SuiteRecord

SUITES = Path(__file__).parents[1] / "learning" / "suites"


def run_suite(task: str, folder: Path, **algo: Any) -> tuple[Curve, ...]:
    """Train the suite of `task` in `folder`, with settings of `algo` over its template's.

    What has been run there before is not run again.
    """
    document = yaml.safe_load((SUITES / f"{task}.yaml").read_text())
    document["spec"]["template"]["algo"] |= algo
    subprocess.run(
        (sys.executable, "-m", "drivetrain_operator.cli.main", "suite", "-f", "-"),
        input=yaml.safe_dump(document),
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # deterministic under load
        check=True,
    )
    root = folder / "suites" / document["metadata"]["name"]
    record = SuiteRecord.from_json((root / SUITE_RECORD).read_text())
    assert all(member.state is MemberState.COMPLETE for member in record.members), record
    return tuple(read_run(root / member.run_directory, member.seed) for member in record.members)
