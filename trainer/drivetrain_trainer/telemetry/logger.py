"""The training logger: validates, reduces over the ranks, feeds backend and terminal.

NaN policy: a non-finite value is news, so it is passed on unchanged. One rank's NaN makes
the reduced value NaN, the backend stores it, the terminal shows it, and it is counted.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import structlog

from drivetrain_api.metrics import MetricSchema, Reduction
from drivetrain_trainer.telemetry.backends.registry import make_backends
from drivetrain_trainer.telemetry.backends.writer import BackendHealth, BackendWriter
from drivetrain_trainer.telemetry.record import Record
from drivetrain_trainer.telemetry.reduction import RankReducer
from drivetrain_trainer.telemetry.terminal.terminal import Terminal, make_terminal
from drivetrain_trainer.telemetry.timeline import ITERATION_TIME, LEARNING_TIME
from drivetrain_trainer.telemetry.validation import ReportValidator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    import torch.distributed as dist

    from drivetrain_api.algorithms import AlgoName
    from drivetrain_trainer.telemetry.backends.base import Backend, BackendContext
    from drivetrain_trainer.telemetry.facts import EvaluationFigures

_ITERATION = "Train/iteration"
_ROWS = "rows per second"
"""Travels with the tags through the reduction; never persisted."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class LoggerStats:
    """How telemetry itself went, for the run's summary."""

    reports: int
    """Reports submitted by this process."""
    nonfinite_values: int
    """Reduced values that were NaN or infinite."""
    backends: tuple[BackendHealth, ...]
    """One a backend; empty beyond rank 0."""


class TrainingLogger:
    """Every rank has one; rank 0's alone holds backends and a terminal.

    A report that breaks the schema raises at its submission. Nothing else does: a slow or
    failing backend or terminal is warned of once, counted, and training goes on.
    """

    def __init__(
        self,
        backends: Sequence[Backend] = (),
        terminal: Terminal | None = None,
        *,
        algo: AlgoName,
        rank: int = 0,
        world_size: int = 1,
        group: dist.ProcessGroup | None = None,
        schema: MetricSchema | None = None,
        rows_per_iteration: int | None = None,
    ) -> None:
        """Start the backends' threads and the terminal.

        Args:
            backends: persistent backends, not yet opened.
            terminal: what a person sees, not yet started.
            algo: decides which tags may be submitted.
            rank: global rank.
            world_size: ranks.
            group: process group of all ranks; the default one when unset.
            schema: metric schema, with the environment's own families.
            rows_per_iteration: replay rows that one iteration of this rank learns from.

        Raises:
            ValueError: for a backend or terminal beyond rank 0.
        """
        if rank and (backends or terminal):
            raise ValueError(f"rank {rank} was given a backend or terminal; rank 0 alone owns them")
        self._rank = rank
        self._validator = ReportValidator(schema or MetricSchema(), algo)
        self._reducer = RankReducer(
            self._reduction_of, rank=rank, world_size=world_size, group=group, extra_tags=(_ROWS,)
        )
        self._rows_per_iteration = rows_per_iteration
        self._reports = 0
        self._nonfinite = 0
        self._writers = tuple(BackendWriter(backend) for backend in backends)
        self._terminal = terminal
        if terminal is not None:
            terminal.start()

    @classmethod
    def open(
        cls,
        context: BackendContext,
        *,
        rank: int = 0,
        world_size: int = 1,
        group: dist.ProcessGroup | None = None,
        schema: MetricSchema | None = None,
    ) -> Self:
        """The logger of a run, with its backends and a terminal where this is rank 0.

        Raises:
            SpecError: for a backend that cannot be made; nothing has been started then.
        """
        owner, facts = rank == 0, context.facts
        return cls(
            make_backends(context) if owner else (),
            make_terminal(facts) if owner else None,
            algo=context.spec.algo.name,
            rank=rank,
            world_size=world_size,
            group=group,
            schema=schema,
            rows_per_iteration=facts.batch_per_rank * facts.updates_per_iteration,
        )

    def submit(
        self,
        *parts: Mapping[str, float],
        env_steps: int,
        iteration: int,
        buffer_rows: int | None = None,
    ) -> dict[str, float]:
        """Submit one report; collective: every rank calls it for the same iterations.

        Args:
            parts: tag -> value, by whoever measured it; a tag stands in one part alone.
            env_steps: environment steps over all ranks: the step axis.
            iteration: learner iterations done; the logger writes ``Train/iteration``.
            buffer_rows: transitions in this rank's replay ring, for the terminal.

        Returns:
            The values reduced over the ranks, the same on every rank.

        Raises:
            UnknownMetricError: naming near tags.
            MetricReportError: for a duplicate, a tag of the logger's own, or no number.
            RankDivergenceError: if the ranks are not at the same iteration.
        """
        values = self._validator.merge(parts)
        rows = self._rows_per_second(values)
        if rows is not None:
            values[_ROWS] = rows
        reduced = self._reducer.reduce(values, iteration)
        total_rows = reduced.pop(_ROWS, None)
        self._reports += 1
        self._note_nonfinite(reduced, env_steps)
        self._feed(
            Record(
                env_steps=env_steps,
                iteration=iteration,
                wall_time=time.time(),
                values=reduced | {_ITERATION: float(iteration)},
                learner_rows_per_second=total_rows,
                buffer_rows=buffer_rows,
            )
        )
        return reduced

    def evaluated(self, evaluation: EvaluationFigures, *, iteration: int) -> None:
        """Log an evaluation under ``eval-rollout/``; not collective, rank 0's counts."""
        values = {
            "eval-rollout/reward": evaluation.mean,
            "eval-rollout/reward_sd": evaluation.sd,
        }
        if evaluation.mean_length is not None:
            values["eval-rollout/episode_length"] = evaluation.mean_length
        if self._terminal is not None:
            self._terminal.evaluated(evaluation)
        record = Record(
            env_steps=evaluation.env_steps,
            iteration=iteration,
            wall_time=time.time(),
            values=self._validator.merge((values,)),
        )
        for writer in self._writers:
            writer.put(record)

    def close(self) -> LoggerStats:
        """Leave the last panel on screen and write what is queued, within a bound."""
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None
        for writer in self._writers:
            writer.close()
        return self.stats

    @property
    def stats(self) -> LoggerStats:
        """Counts so far."""
        health = tuple(writer.health for writer in self._writers)
        return LoggerStats(self._reports, self._nonfinite, health)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _reduction_of(self, tag: str) -> Reduction:
        if tag == _ROWS:
            return Reduction.SUM
        if tag == _ITERATION:
            return Reduction.RANK0
        return self._validator.metric(tag).reduction

    def _rows_per_second(self, values: Mapping[str, float]) -> float | None:
        wall = values.get(ITERATION_TIME)
        learnt = values.get(LEARNING_TIME)
        if self._rows_per_iteration is None or not wall or not learnt:
            return None
        return self._rows_per_iteration / wall

    def _note_nonfinite(self, reduced: Mapping[str, float], env_steps: int) -> None:
        found = [tag for tag, value in reduced.items() if not math.isfinite(value)]
        if found and not self._nonfinite and self._rank == 0:
            log.warning("metrics are not finite", env_steps=env_steps, tags=found)
        self._nonfinite += len(found)

    def _feed(self, record: Record) -> None:
        for writer in self._writers:
            writer.put(record)
        if self._terminal is not None:
            self._terminal.update(record)
