"""A rank started by hand, as ``python -m drivetrain_trainer.train`` takes it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "drivetrain_trainer.train", "--spec", "run.json")


def write_attempt(
    folder: Path, spec: Mapping[str, Any], *, uid: str = "run-1", attempt: int = 1
) -> None:
    """Write ``run.json`` of an attempt."""
    content = {
        "name": "by-hand",
        "namespace": "default",
        "uid": uid,
        "attempt": attempt,
        "created": "2026-01-01T00:00:00Z",
        "spec": spec,
    }
    (folder / "run.json").write_text(json.dumps(content))


def environment() -> dict[str, str]:
    """Ours, with one thread a process: what keeps CPU training deterministic under load."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}
