"""Real ranks on a small task: real collector process, real physics, tiny networks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drivetrain_api.artifacts.outcome import RankOutcome
from drivetrain_api.artifacts.run_summary import RunSummary
from drivetrain_api.attempt import AttemptSpec
from drivetrain_api.compose import compose, layered, resolve_task
from drivetrain_api.digest import PROGRESS_LIMIT, decode
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.trainingrun import TrainingRunSpec
from drivetrain_trainer.evidence.checkpoint_catalog import CheckpointCatalog
from drivetrain_trainer.evidence.run_directory import find_run_directory
from drivetrain_trainer.launcher.scratch import Scratch
from drivetrain_trainer.runtime.collector import CollectorProcess
from drivetrain_trainer.training.inputs import RankInput
from drivetrain_trainer.training.rank import run_rank
from drivetrain_trainer.training.stop import StopSignal

TINY: dict[str, Any] = {
    "algo": {
        "name": "sac",
        "num_envs": 2,
        "batch_size": 16,
        "updates_per_step": 2,
        "learning_starts": 8,
        "actor_hidden": (16,),
        "critic_hidden": (16,),
        "replay_rows": 1000,
        "precision": "fp32",
    },
    "task": {"name": "inverted_pendulum"},
    "training": {"total_env_steps": 120, "logger": "none", "log_interval": 5},
    "evaluator": {"interval": None, "target": None},
    "checkpoint": {"interval": 1_000_000},
}


@dataclass
class Attempt:
    """One rank run in this process, and what it left."""

    given: RankInput
    collector: CollectorProcess
    stop: StopSignal
    code: ExitCode | None = None

    @property
    def outcome(self) -> RankOutcome:
        assert self.given.scratch is not None
        return RankOutcome.from_json(self.given.scratch.outcome(0).read_text())

    @property
    def directory(self) -> Path:
        found = find_run_directory(self.given.attempt, self.given.storage)
        assert found is not None
        return found

    @property
    def summary(self) -> RunSummary:
        return RunSummary.from_json((self.directory / "run_summary.json").read_text())

    @property
    def checkpoints(self) -> CheckpointCatalog:
        return CheckpointCatalog(self.directory / "checkpoints")

    @property
    def env_steps(self) -> int:
        """Of the progress file; 0 before it is there."""
        assert self.given.scratch is not None
        path = self.given.scratch.progress
        digest = decode(path.read_text(), PROGRESS_LIMIT) if path.exists() else None
        return digest.progress.env_steps if digest and digest.progress else 0

    def when(self, condition: Callable[[], bool], act: Callable[[], object]) -> threading.Thread:
        """Do `act` from another thread once `condition` holds, or never once it has ended."""

        def watch() -> None:
            while self.code is None and not condition():
                time.sleep(0.001)
            act()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        return thread

    def run(self) -> ExitCode:
        with self.collector:
            self.code = run_rank(self.given, self.collector, self.stop)
        return self.code


@dataclass
class Ranks:
    """Makes attempts of one run; `storage` is shared by them."""

    storage: Path
    uid: str = "run-1"
    attempts: int = 0
    made: list[Attempt] = field(default_factory=list)

    def given(self, **sections: Any) -> RankInput:
        """Input of the next attempt."""
        self.attempts += 1
        spec = TrainingRunSpec.model_validate(layered(TINY, sections))
        task = resolve_task(spec)
        scratch = Scratch(self.storage / f"scratch-{self.uid}-{self.attempts}")
        scratch.prepare(range(1))
        return RankInput(
            attempt=AttemptSpec(
                name="tiny",
                namespace="default",
                uid=self.uid,
                attempt=self.attempts,
                created=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
                spec=spec,
            ),
            spec=compose(spec, task),
            task=task,
            storage=self.storage,
            scratch=scratch,
        )

    def attempt(self, **sections: Any) -> Attempt:
        attempt = Attempt(self.given(**sections), CollectorProcess.spawn(), StopSignal())
        self.made.append(attempt)
        return attempt
