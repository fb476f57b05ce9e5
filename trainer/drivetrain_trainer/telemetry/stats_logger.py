"""From the stats tracker to the run's backends: one commit at the end of a training step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from drivetrain_api.metrics import Owner
from drivetrain_trainer import stats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch.distributed as dist

    from drivetrain_trainer.telemetry.logger import TrainingLogger
    from drivetrain_trainer.telemetry.record import Table

log = structlog.get_logger(__name__)


class StatsLogger:
    """Hands exported statistics to the training logger, whose backends write them on rank 0.

    A key is a tag: it must belong to a family of the tracker's in the metric schema
    (``timeperf/``, ``train_perf/``, ``moe_balance/``, ``ppo_actor/``, ``sac_actor/``,
    ``rollout/``, ``eval-rollout/``). Every rank checks, so that all of them refuse a wrong one
    alike.
    """

    def __init__(self, logger: TrainingLogger, *, group: dist.ProcessGroup | None = None) -> None:
        """A stats logger of this rank.

        Args:
            logger: the run's training logger; rank 0's has the backends.
            group: all ranks of the run; None for a single one.
        """
        self._logger = logger
        self._group = group

    def commit(
        self,
        epoch: int,
        step: int,
        global_step: int,
        data: Mapping[str, float],
        *,
        tables: Mapping[str, Table] | None = None,
    ) -> None:
        """Write statistics that are reduced already to every configured backend.

        Args:
            epoch: passes over the data; 0 where training has none.
            step: learner iterations done.
            global_step: environment steps over all ranks: the step of every backend.
            data: key -> value; keys that end in ``__count`` are weights and are dropped.
            tables: name -> table, for backends that hold tables.

        Raises:
            UnknownMetricError: for a key of no family, naming near ones.
            MetricReportError: for a key that somebody else submits, or a value of no number.
        """
        values = {key: value for key, value in data.items() if not key.endswith(stats.COUNT_SUFFIX)}
        if not values and not tables:
            return
        self._logger.persist(
            {Owner.TRACKER: values}, env_steps=global_step, iteration=step, tables=tables
        )
        log.debug(
            "stats committed", epoch=epoch, step=step, global_step=global_step, stats=len(values)
        )

    def export_and_commit(
        self,
        epoch: int,
        step: int,
        global_step: int,
        *,
        streamed: Iterable[Mapping[str, float]] = (),
        reduced: Mapping[str, float] | None = None,
        tables: Mapping[str, Table] | None = None,
    ) -> dict[str, float]:
        """Export all trackers over all ranks, merge what workers streamed, commit; collective.

        Args:
            epoch: as for `commit`.
            step: as for `commit`.
            global_step: as for `commit`.
            streamed: exports of rollout workers (`StatsTracker.export` without a group), with
                their counts; a key that a rank recorded too is weighed together with them.
            reduced: figures of meters that go over the ranks themselves, by key, such as
                `ThroughputMeter.export` gives.
            tables: as for `commit`.

        Returns:
            What was committed, counts included.

        Raises:
            ReduceTypeConflictError: on every rank, if two ranks recorded a key differently.
            UnknownMetricError, MetricReportError: as for `commit`.
        """
        exported = stats.export_all(self._group)
        data = exported | _aggregated(exported, list(streamed)) | dict(reduced or {})
        self.commit(epoch, step, global_step, data, tables=tables)
        return data


def _aggregated(
    exported: Mapping[str, float], streamed: list[Mapping[str, float]]
) -> dict[str, float]:
    """The workers' keys; those that nobody streamed stay as they were exported."""
    keys = {key for raw in streamed for key in raw}
    means = stats.aggregate([exported, *streamed])
    return {key: value for key, value in means.items() if key in keys}
