"""``drivetrain soak`` over the stand-in trainer, many at once: they mostly sleep."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from drivetrain_api.artifacts.soak import SoakArtifact

TRAINER = Path(__file__).with_name("soak_trainer.py")
DRIVETRAIN = str(Path(sys.executable).with_name("drivetrain"))
SCALED = (
    *("--sample", "0.05", "--warm-up", "0.3", "--start", "20", "--stale", "2", "--grace", "1"),
    *("--max-growth", "rss=24", "--max-growth", "pss=24", "--max-growth", "fds=24"),
    *("--max-growth", "threads=16", "--max-growth", "shm=16"),
)
"""Seconds instead of minutes, mebibytes instead of hundreds of them."""


@dataclass(frozen=True)
class Case:
    """A run, and what must be said of it."""

    name: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    says: str = "passed"
    """`passed`, or the classification of the failure."""
    rule: str = ""
    """The rule that was broken first."""


@dataclass
class Soaked:
    """How a soak ended."""

    code: int
    stdout: str
    stderr: str
    folder: Path
    artifact: SoakArtifact | None = None


@dataclass
class Soaks:
    """Soaks in folders of their own, started before they are asked for."""

    root: Path
    scale: tuple[str, ...] = SCALED
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))
    begun: dict[str, Future[Soaked]] = field(default_factory=dict)

    def begin(self, case: Case) -> None:
        self.begun[case.name] = self.pool.submit(self.run, case)

    def of(self, case: Case) -> Soaked:
        return self.begun[case.name].result()

    def run(self, case: Case) -> Soaked:
        folder = self.root / case.name.replace(" ", "-")
        shm = folder / "shm"
        shm.mkdir(parents=True)
        done = subprocess.run(
            [
                *(DRIVETRAIN, "soak", *self.scale, "--shm-dir", str(shm), *case.options),
                *("--", sys.executable, "-S", str(TRAINER), str(folder / "run")),
                *("--shm-dir", str(shm), *case.arguments),
            ],
            cwd=folder,
            env=os.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        artifacts = sorted(folder.rglob("soak_artifact.json"))
        artifact = SoakArtifact.from_json(artifacts[0].read_text()) if artifacts else None
        return Soaked(done.returncode, done.stdout, done.stderr, folder, artifact)
