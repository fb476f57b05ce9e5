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

from drivetrain_api.metrics import METRICS, MetricSchema, Reduction
from drivetrain_trainer.telemetry.backends.registry import make_backends
from drivetrain_trainer.telemetry.backends.writer import BackendHealth, BackendWriter, close_all
from drivetrain_trainer.telemetry.record import Record
from drivetrain_trainer.telemetry.reduction import RankReducer
from drivetrain_trainer.telemetry.terminal.terminal import Terminal, make_terminal
from drivetrain_trainer.telemetry.timeline import (
    CLOCK_TOLERANCE,
    ITERATION_TIME,
    LEARNING_TIME,
    accounted_ms,
)
from drivetrain_trainer.telemetry.validation import MetricReportError, ReportValidator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    import torch.distributed as dist

    from drivetrain_api.algorithms import AlgoName
    from drivetrain_trainer.telemetry.backends.base import Backend, BackendContext
    from drivetrain_trainer.telemetry.facts import EvaluationFigures
    from drivetrain_trainer.telemetry.record import Table
    from drivetrain_trainer.telemetry.validation import Part

_ITERATION = "Train/iteration"
_ROWS = "rows per second"
_OVERFULL = "ranks whose phases exceed the iteration"
"""These two travel with the tags through the reduction; never persisted."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class LoggerStats:
    """How telemetry itself went, for the run's summary."""

    reports: int
    """Reports submitted by this process."""
    nonfinite_values: int
    """Reduced values that were NaN or infinite."""
    overfull_timelines: int
    """Reports of single ranks whose exclusive phases add up to more than Iter Wall."""
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
        self._algo = algo
        self._validator = ReportValidator(schema or MetricSchema(), algo)
        self._reducer = RankReducer(
            self._reduction_of,
            rank=rank,
            world_size=world_size,
            group=group,
            extra_tags=(_ROWS, _OVERFULL),
        )
        self._rows_per_iteration = rows_per_iteration
        self._reports = 0
        self._nonfinite = 0
        self._overfull = 0
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
        *parts: Part,
        env_steps: int,
        iteration: int,
        buffer_rows: int | None = None,
        tables: Mapping[str, Table] | None = None,
    ) -> Record:
        """Submit one report; collective: every rank calls it for the same iterations.

        Args:
            parts: owner -> tag -> value, by whoever measured it; a tag stands there once.
            env_steps: environment steps over all ranks: the step axis.
            iteration: learner iterations done; the logger writes ``Train/iteration``.
            buffer_rows: transitions in this rank's replay ring, for the terminal.
            tables: name -> table, for backends that hold tables; rank 0's are kept. A name is
                a member of a family.

        Returns:
            What was persisted and shown: reduced over the ranks, the same values on each.

        Raises:
            UnknownMetricError: naming near tags.
            MetricReportError: for a duplicate, somebody else's tag, another unit, no number.
            RankDivergenceError: if the ranks are not at the same iteration.
        """
        values = self._validator.merge(parts)
        self._check_tables(tables)
        reduced = self._reducer.reduce(values | self._derived(values), iteration)
        rows = reduced.pop(_ROWS, None)
        self._note_overfull(reduced.pop(_OVERFULL, 0.0), env_steps)
        self._reports += 1
        self._note_nonfinite(reduced, env_steps)
        record = Record(
            env_steps=env_steps,
            iteration=iteration,
            wall_time=time.time(),
            values=reduced | {_ITERATION: float(iteration)},
            learner_rows_per_second=rows,
            buffer_rows=buffer_rows,
            tables=tables or {},
        )
        self._persist(record)
        if self._terminal is not None:
            self._terminal.update(record)
        return record

    def persist(
        self,
        *parts: Part,
        env_steps: int,
        iteration: int,
        tables: Mapping[str, Table] | None = None,
    ) -> None:
        """Persist what is reduced already, such as an evaluation; not collective.

        The arguments and refusals are those of `submit`. Rank 0's counts; the terminal does
        not show it.
        """
        values = self._validator.merge(parts)
        self._check_tables(tables)
        self._persist(Record(env_steps, iteration, time.time(), values, tables=tables or {}))

    def evaluated(self, evaluation: EvaluationFigures) -> None:
        """Show an evaluation in the terminal; its figures are persisted as statistics are."""
        if self._terminal is not None:
            self._terminal.evaluated(evaluation)

    def retarget(self, env_steps: int) -> None:
        """The run is complete at that step now: what the terminal counts towards."""
        if self._terminal is not None:
            self._terminal.retarget(env_steps)

    def upload(self, path: Path, name: str) -> None:
        """Send a file to the backends that take files, after what is queued; returns at once."""
        for writer in self._writers:
            writer.upload(path, name)

    def close(self) -> LoggerStats:
        """Leave the last panel on screen and write what is queued, within a bound."""
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None
        close_all(self._writers)
        return self.stats

    @property
    def stats(self) -> LoggerStats:
        """Counts so far; never blocks."""
        health = tuple(writer.health for writer in self._writers)
        return LoggerStats(self._reports, self._nonfinite, self._overfull, health)

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
        if tag in (_ROWS, _OVERFULL):
            return Reduction.SUM
        if tag == _ITERATION:
            return Reduction.RANK0
        return self._validator.metric(tag).reduction

    def _check_tables(self, tables: Mapping[str, Table] | None) -> None:
        for name in tables or ():
            if name in METRICS:
                raise MetricReportError(f"table {name!r} has the name of a canonical tag")
            self._validator.metric(name)

    def _derived(self, values: Mapping[str, float]) -> dict[str, float]:
        """What this rank's values say beyond the tags."""
        wall = values.get(ITERATION_TIME)
        if not wall:
            return {}
        found = {}
        if self._rows_per_iteration is not None and values.get(LEARNING_TIME):
            found[_ROWS] = self._rows_per_iteration / wall
        if accounted_ms(values, self._algo) > 1e3 * wall * (1.0 + CLOCK_TOLERANCE):
            found[_OVERFULL] = 1.0
        return found

    def _note_overfull(self, ranks: float, env_steps: int) -> None:
        if ranks and not self._overfull and self._rank == 0:
            log.warning(
                "exclusive learner phases add up to more than Iter Wall: two of them overlap, "
                "or a clock is wrong; this is a defect, please report it",
                env_steps=env_steps,
                ranks=int(ranks),
            )
        self._overfull += int(ranks)

    def _note_nonfinite(self, reduced: Mapping[str, float], env_steps: int) -> None:
        found = [tag for tag, value in reduced.items() if not math.isfinite(value)]
        if found and not self._nonfinite and self._rank == 0:
            log.warning("metrics are not finite", env_steps=env_steps, tags=found)
        self._nonfinite += len(found)

    def _persist(self, record: Record) -> None:
        for writer in self._writers:
            writer.put(record)
