"""Peers run in environments of their own below ``build/peers``, by their own scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path("build/peers")
SCRIPTS = Path(__file__).parent / "peers"

PACKAGES = {
    "sb3": ["stable-baselines3==2.9.2", "gymnasium[mujoco]==1.4.0", "torch==2.13.0"],
    "skrl": ["skrl==2.1.1", "gymnasium[mujoco]==1.4.0", "torch==2.13.0"],
}


class PeerUnavailableError(RuntimeError):
    """A peer that cannot be installed here; the bench says so and fails."""


def run_peer(name: str, script: str, *arguments: str) -> dict[str, float]:
    """Run ``peers/<script>`` in the peer's environment; its last line is a JSON object.

    Raises:
        PeerUnavailableError: it cannot be installed.
    """
    command = [str(environment(name)), str(SCRIPTS / script), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def environment(name: str) -> Path:
    """Python of the peer's environment, made where it is not there yet."""
    python = FOLDER / name / "bin" / "python"
    if (FOLDER / name / ".installed").exists():
        return python
    try:
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER / name)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *PACKAGES[name]]
        subprocess.run(install, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PeerUnavailableError(f"{name} cannot be installed: {error}") from error
    (FOLDER / name / ".installed").touch()
    return python
