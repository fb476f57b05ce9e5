"""The progress file that the launcher publishes: written by rank 0, at most once a second."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from drivetrain_api.atomic import write_text_atomically
from drivetrain_api.digest import PROGRESS_LIMIT, Digest, encode
from drivetrain_api.status import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

INTERVAL_SECONDS = 1.0


def decimal(value: float | None, digits: int = 6) -> str | None:
    """A figure as the status holds it: a decimal string, or nothing where not finite."""
    if value is None or not math.isfinite(value):
        return None
    return f"{value:.{digits}g}"


@dataclass
class ProgressReporter:
    """Keeps the latest figures and writes them; silent where no launcher asked for them."""

    path: Path | None
    attempt: int
    target_env_steps: int | None
    clock: Callable[[], float] = time.monotonic
    steps_per_second: float | None = None
    mean_reward: float | None = None
    evaluated_return: float | None = None
    best_evaluated_return: float | None = None
    checkpoint_env_steps: int | None = None
    _written: float = -math.inf

    def note(self, reduced: Mapping[str, float]) -> None:
        """Take what the status shows from a report that is reduced over the ranks."""
        self.steps_per_second = reduced.get("Perf/total_fps", self.steps_per_second)
        self.mean_reward = reduced.get("Train/mean_reward", self.mean_reward)

    def evaluated(self, latest: float, best: float) -> None:
        """Take mean returns of the latest evaluation and of the best one."""
        self.evaluated_return, self.best_evaluated_return = latest, best

    def write(self, iteration: int, env_steps: int, *, force: bool = False) -> None:
        """Write the file if a second has passed, or at once with `force`."""
        now = self.clock()
        if self.path is None or (not force and now - self._written < INTERVAL_SECONDS):
            return
        self._written = now
        digest = Digest(attempt=self.attempt, progress=self.progress(iteration, env_steps))
        write_text_atomically(self.path, encode(digest, PROGRESS_LIMIT), durable=False)

    def progress(self, iteration: int, env_steps: int) -> Progress:
        """The figures as the status holds them."""
        return Progress(
            iteration=iteration,
            env_steps=env_steps,
            target_env_steps=self.target_env_steps,
            percent=self._percent(env_steps),
            steps_per_second=decimal(self.steps_per_second),
            mean_reward=decimal(self.mean_reward),
            evaluated_return=decimal(self.evaluated_return),
            best_evaluated_return=decimal(self.best_evaluated_return),
            eta_seconds=self._eta(env_steps),
            checkpoint_env_steps=self.checkpoint_env_steps,
            at=datetime.now(UTC),
        )

    def _percent(self, env_steps: int) -> int | None:
        if self.target_env_steps is None:
            return None
        return min(100, 100 * env_steps // self.target_env_steps)

    def _eta(self, env_steps: int) -> int | None:
        if self.target_env_steps is None or not self.steps_per_second:
            return None
        return max(0, round((self.target_env_steps - env_steps) / self.steps_per_second))
