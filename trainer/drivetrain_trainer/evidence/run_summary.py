"""``run_summary.json``: there from the start of a run, and never more than a moment old.

Every write replaces the file atomically, so that the summary of a live or a killed run can
be read at any time.
"""

from __future__ import annotations

import math
import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self, TypedDict, Unpack

import structlog

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_summary import TAIL_WINDOW_ITERATIONS, RunSeeds, RunSummary
from drivetrain_api.atomic import (
    UnreadableFileError,
    read_bounded,
    write_text_atomically,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pydantic import JsonValue

    from drivetrain_api.artifacts.run_summary import RunTelemetry
    from drivetrain_api.artifacts.stages import RunStages
    from drivetrain_api.trainingrun import TrainingRunSpec
    from drivetrain_trainer.evidence.fence import Fence
    from drivetrain_trainer.evidence.run_directory import RunDirectory

log = structlog.get_logger(__name__)

INTERVAL_SECONDS: Final = 2.0
"""Least time between two writes of a running summary."""
SUMMARY_LIMIT: Final = 4 << 20
ERROR_LIMIT: Final = 4096


class Figures(TypedDict, total=False):
    """What a rank tells the summary; a figure that is not finite is stored as null."""

    training_wall_time_sec: float
    final_mean_reward: float | None
    mean_episode_length: float | None
    evaluated_return: float | None
    invalid_rows: int
    last_checkpoint: str
    best_checkpoint: str
    trace_path: str
    wandb_run_url: str
    final_env_steps_per_sec: float | None
    final_learner_replay_rows_per_sec: float | None
    final_cycle_wall_ms: float | None
    final_inference_ms: float | None
    final_inference_h2d_ms: float | None
    final_inference_forward_ms: float | None
    final_inference_d2h_ms: float | None
    backend_diagnostics: dict[str, JsonValue]
    telemetry: RunTelemetry
    stages: RunStages


_BEST: Final = {
    "final_mean_reward": "best_mean_reward",
    "evaluated_return": "best_evaluated_return",
}
"""Figure -> the summary's best of it."""


class SummaryWriter:
    """Keeps a run's summary; rank 0 alone has one."""

    def __init__(
        self,
        path: Path,
        fence: Fence,
        summary: RunSummary,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write `summary` to `path` and keep it up to date; see `start`."""
        self._path = path
        self._fence = fence
        self._clock = clock
        self._started = clock()
        self._tail: deque[tuple[float, int]] = deque(maxlen=TAIL_WINDOW_ITERATIONS + 1)
        self._state: dict[str, object] = dict(summary)
        self._manifest: Callable[[], dict[str, JsonValue]] | None = None
        self._write(durable=True)

    @classmethod
    def start(
        cls,
        directory: RunDirectory,
        spec: TrainingRunSpec,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Write the summary of an attempt that begins, with status running.

        A resumed run keeps its start, its best figures and its checkpoints.

        Args:
            directory: The claimed run directory.
            spec: The composed spec.
            clock: Monotonic seconds.

        Raises:
            FencedError: a newer attempt owns the directory.
            OSError: the file cannot be written.
        """
        before = _read(directory.run_summary) if directory.resumed else None
        kept = {} if before is None else before.model_dump(include=_KEPT)
        summary = RunSummary(
            status=RunStatus.RUNNING,
            algo=spec.algo.name,
            task=spec.task.name,
            sim_backend=spec.sim,
            log_dir=str(directory.path),
            seeds=RunSeeds(
                run=spec.seed,
                algo=spec.seed if spec.algo.seed is None else spec.algo.seed,
                env=spec.seed if spec.env.seed is None else spec.env.seed,
            ),
            **{"start_time_utc": datetime.now(UTC), **kept},
        )
        return cls(directory.run_summary, directory.fence, summary, clock=clock)

    @property
    def summary(self) -> RunSummary:
        """The summary as it is now, written or not."""
        manifest = {} if self._manifest is None else {"runtime_manifest": self._manifest()}
        return RunSummary.model_validate(self._state | manifest)

    def follow_manifest(self, manifest: Callable[[], dict[str, JsonValue]]) -> None:
        """Take the runtime manifest from whoever keeps it, anew at each write.

        Reports change it several times between two writes, which is nobody's business.
        """
        self._manifest = manifest

    def iteration_done(self, iterations: int, env_steps: int) -> None:
        """Count a learner iteration; writes if the interval has passed.

        Args:
            iterations: Learner iterations of the run so far.
            env_steps: Environment steps of the run so far, over all ranks.
        """
        now = self._clock()
        self._tail.append((now, env_steps))
        self._state["completed_iterations"] = iterations
        self._state["total_env_steps"] = env_steps
        if now - self._written >= INTERVAL_SECONDS:
            self._write(durable=False)

    def note(self, **figures: Unpack[Figures]) -> None:
        """Take new figures, and the best of them; they are written with the next iteration."""
        for name, value in figures.items():
            known = value if not isinstance(value, float) or math.isfinite(value) else None
            self._state[name] = known
            if name in _BEST and isinstance(known, float):
                best = self._state[_BEST[name]]
                better = max(best, known) if isinstance(best, float) else known
                self._state[_BEST[name]] = better

    def write(self) -> None:
        """Write now: after a checkpoint, an evaluation."""
        self._write(durable=True)

    def finish(self, status: RunStatus, error: BaseException | None = None) -> RunSummary:
        """Write the last word of this attempt.

        Args:
            status: completed, interrupted or failed.
            error: What ended it, on failure.
        """
        self._state |= {"status": status, "end_time_utc": datetime.now(UTC), **_words(error)}
        self._write(durable=True)
        return self.summary

    def _write(self, *, durable: bool) -> None:
        self._state["wall_time_sec"] = max(0.0, self._clock() - self._started)
        self._state |= self._tail_figures()
        self._fence.check()
        write_text_atomically(self._path, self.summary.to_json(), durable=durable)
        self._written = self._clock()

    def _tail_figures(self) -> dict[str, object]:
        if len(self._tail) < 2:  # noqa: PLR2004 - a rate lies between two points
            return {}
        (began, before), (ended, after) = self._tail[0], self._tail[-1]
        rate = (after - before) / (ended - began) if ended > began else None
        return {"tail_env_steps_per_sec": rate, "tail_iteration_count": len(self._tail) - 1}


def finish_abandoned(
    path: Path,
    fence: Fence,
    status: RunStatus,
    error_type: str | None,
    error: str | None,
    *,
    shutdown: dict[str, JsonValue] | None = None,
) -> RunSummary | None:
    """Give the summary of a run whose rank 0 was killed the end that it had no time to write.

    Args:
        path: The summary.
        fence: Of the attempt that has ended.
        status: What the attempt came to.
        error_type: Short name of the cause on failure.
        error: The cause, for a person.
        shutdown: What is known of rank 0's end, for the manifest, where one was begun.

    Returns:
        The summary as it is now; None where there is none that can be read.

    Raises:
        FencedError: a newer attempt owns the directory.
        OSError: the file cannot be written.
    """
    summary = _read(path)
    if summary is None or summary.status is not RunStatus.RUNNING:
        return summary
    manifest = summary.runtime_manifest
    if manifest is not None and shutdown is not None:
        manifest = {**manifest, "shutdown": shutdown}
    ended = summary.model_copy(
        update={
            "runtime_manifest": manifest,
            "status": status,
            "end_time_utc": datetime.now(UTC),
            "error_type": error_type,
            "error": None if error is None else error[:ERROR_LIMIT],
        }
    )
    fence.check()
    write_text_atomically(path, ended.to_json())
    return ended


_KEPT: Final = {
    "start_time_utc",
    "completed_iterations",
    "total_env_steps",
    "best_mean_reward",
    "evaluated_return",
    "best_evaluated_return",
    "last_checkpoint",
    "best_checkpoint",
    "wandb_run_url",
    "stages",
}
"""What a later attempt goes on from."""


def _read(path: Path) -> RunSummary | None:
    try:
        return RunSummary.from_json(read_bounded(path, SUMMARY_LIMIT))
    except FileNotFoundError:
        return None
    except (UnreadableFileError, ArtifactError) as error:
        log.warning("run summary is not readable", path=str(path), reason=str(error))
        return None


def _words(error: BaseException | None) -> dict[str, object]:
    if error is None:
        return {}
    return {"error_type": type(error).__name__[:253], "error": str(error)[:ERROR_LIMIT]}
