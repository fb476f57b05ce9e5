"""Where the Gymnasium models lie."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from drivetrain_trainer.envs.errors import EnvError


def gymnasium_model(name: str) -> Path:
    """An MJCF file of the installed gymnasium package, which is not imported for it.

    Raises:
        EnvError: gymnasium is not installed, or has no such file.
    """
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or spec.origin is None:
        raise EnvError("gymnasium, whose models this task uses, is not installed")
    path = Path(spec.origin).parent / "envs" / "mujoco" / "assets" / name
    if not path.is_file():
        raise EnvError(f"the installed gymnasium has no model {path}; version 1.4 has it")
    return path
