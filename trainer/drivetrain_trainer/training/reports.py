"""Metric reports, the run's summary and its progress file, fed at the end of iterations.

All three show what one submission to the training logger came to: reduced over the ranks once.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import structlog

from drivetrain_api.artifacts.run_summary import BackendTelemetry, RunTelemetry
from drivetrain_api.metrics import Owner
from drivetrain_api.training import WANDB_LOGGER
from drivetrain_trainer import stats
from drivetrain_trainer.runtime.collector_report import INVALID_ROWS
from drivetrain_trainer.telemetry.backends.base import RUN_URL
from drivetrain_trainer.telemetry.facts import EvaluationFigures
from drivetrain_trainer.telemetry.stats_logger import StatsLogger
from drivetrain_trainer.telemetry.timeline import ITERATION_TIME, TOTAL_FPS
from drivetrain_trainer.training.manifest import soundness
from drivetrain_trainer.training.step_rate import StepRate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch.distributed as dist

    from drivetrain_trainer.algorithms.sac.agent import SacAgent
    from drivetrain_trainer.evaluation.evaluator import EvaluationResult
    from drivetrain_trainer.evidence.run_summary import SummaryWriter
    from drivetrain_trainer.runtime.collector import CollectorProcess
    from drivetrain_trainer.runtime.collector_report import CollectorReport
    from drivetrain_trainer.runtime.ingress_words import IngressCounters
    from drivetrain_trainer.runtime.replay import ReplayRing
    from drivetrain_trainer.runtime.transport import Transport
    from drivetrain_trainer.telemetry.logger import LoggerStats, TrainingLogger
    from drivetrain_trainer.telemetry.record import Record
    from drivetrain_trainer.telemetry.validation import Part
    from drivetrain_trainer.training.manifest import ManifestWriter
    from drivetrain_trainer.training.phases import PhaseTimeline
    from drivetrain_trainer.training.progress import ProgressReporter
    from drivetrain_trainer.training.schedule import Cursor
    from drivetrain_trainer.training.staleness import ReplayAges

SMOOTHED_REPORTS: Final = 10
"""Reports that the checkpoint's smoothed mean reward is over."""

_EPOCH: Final = 0
"""Training on what an environment gives makes no passes over a data set."""

H2D_SUBMIT: Final = "Perf/replay_ingress_h2d_submit_ms"

log = structlog.get_logger(__name__)


class Reports:
    """Gathers what was measured and gives it to its readers; every rank has one."""

    def __init__(
        self,
        logger: TrainingLogger,
        *,
        interval: int,
        agent: SacAgent,
        collector: CollectorProcess,
        transport: Transport,
        replay: ReplayRing,
        progress: ProgressReporter,
        summary: SummaryWriter | None,
        ages: ReplayAges,
        group: dist.ProcessGroup | None,
        manifest: ManifestWriter | None = None,
        trained: Callable[[], float],
    ) -> None:
        """`trained` tells the seconds in the training loop of this attempt."""
        self._logger = logger
        self._manifest = manifest
        self._stats = StatsLogger(logger, group=group)
        self._interval = interval
        self._agent = agent
        self._collector = collector
        self._transport = transport
        self._replay = replay
        self._progress = progress
        self._summary = summary
        self._ages = ages
        self._instability: dict[str, int] = {}
        self._best_evaluation: tuple[float, int] | None = None
        self._latest_evaluation: float | None = None
        self._rate = StepRate(hold=group is not None)
        self._reported: tuple[int, int] | None = None
        """Iteration and environment steps of the latest report."""
        self._mean_rewards: deque[float] = deque(maxlen=SMOOTHED_REPORTS)
        self._trained = trained

    def iteration_done(self, cursor: Cursor, timeline: PhaseTimeline) -> None:
        """Count an iteration, and report where the interval has passed; the same on all ranks."""
        if self._summary is not None:
            self._summary.iteration_done(cursor.iteration, cursor.env_steps)
        self._progress.write(cursor.iteration, cursor.env_steps)
        if cursor.iteration % self._interval == 0:
            self._ages.record(stats.get(), self._replay.sampled_ages(), cursor)
            self.report(cursor, timeline)

    def finish(self, cursor: Cursor, timeline: PhaseTimeline) -> None:
        """The last report, with the ticks that no iteration counted; collective.

        Where the last step was reported already, what a second report would say of it is of
        no iteration, and would take the place of the first: what stages took is all that
        is added.
        """
        if self._reported == (cursor.iteration, cursor.env_steps):
            self._stats.export_and_commit(_EPOCH, cursor.iteration, cursor.env_steps)
        else:
            self.report(cursor, timeline)
        if self._summary is not None:
            self._summary.iteration_done(cursor.iteration, cursor.env_steps)
        self._progress.write(cursor.iteration, cursor.env_steps, force=True)

    def report(self, cursor: Cursor, timeline: PhaseTimeline) -> None:
        """Submit one metric report, then what the stats trackers hold; collective."""
        self._reported = (cursor.iteration, cursor.env_steps)
        collected = self._collector.report()
        counters = self._transport.ingress.counters()
        if self._manifest is not None:
            self._manifest.note(
                flight=collected.flight if collected is not None else None,
                ingress=counters,
                soundness=soundness(collected.totals) if collected is not None else None,
            )
        record = self._logger.submit(
            {Owner.LEARNER: timeline.report()},
            {Owner.LEARNER: self._agent.metrics()},
            {Owner.LEARNER: ingress_metrics(counters)},
            {Owner.LEARNER: device_metrics(self._replay)},
            {Owner.LEARNER: self._rate.of(collected)},
            *(_collected(collected) if collected is not None else ()),
            env_steps=cursor.env_steps,
            iteration=cursor.iteration,
            buffer_rows=self._replay.size,
        )
        self._stats.export_and_commit(
            _EPOCH, cursor.iteration, cursor.env_steps, reduced=self._agent.throughput.export()
        )
        self._progress.note(record.values)
        self._smooth(record.values)
        self._note_summary(record)
        if collected is not None:
            self._note_instability(collected)

    def evaluated(self, result: EvaluationResult, cursor: Cursor) -> None:
        """Tell every reader of an evaluation; rank 0."""
        best = self._best_evaluation
        if best is None or result.mean > best[0]:
            best = self._best_evaluation = (result.mean, cursor.env_steps)
        figures = EvaluationFigures(
            env_steps=cursor.env_steps,
            mean=result.mean,
            sd=result.sd,
            episodes=len(result.returns),
            best_mean=best[0],
            best_env_steps=best[1],
            mean_length=result.mean_length,
        )
        self._logger.evaluated(figures)
        episodes = stats.get(stats.Workflow.EVALUATION).export()
        self._stats.commit(_EPOCH, cursor.iteration, cursor.env_steps, episodes)
        self._latest_evaluation = result.mean
        self._progress.evaluated(result.mean, best[0])
        self._progress.write(cursor.iteration, cursor.env_steps, force=True)
        if self._summary is not None:
            self._summary.note(evaluated_return=result.mean)
            self._summary.write()

    @property
    def smoothed_mean_reward(self) -> float | None:
        """Mean of ``Train/mean_reward`` over the latest reports; lives in checkpoints alone."""
        rewards = self._mean_rewards
        return sum(rewards) / len(rewards) if rewards else None

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run's reports go on from."""
        return {
            "best_evaluation": list(self._best_evaluation) if self._best_evaluation else None,
            "latest_evaluation": self._latest_evaluation,
            "mean_rewards": list(self._mean_rewards),
            "smoothed_mean_reward": self.smoothed_mean_reward,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        best = state["best_evaluation"]
        self._best_evaluation = (best[0], best[1]) if best else None
        # Checkpoints of earlier releases hold no latest evaluation, and no smoothing.
        self._latest_evaluation = state.get("latest_evaluation")
        if best and self._latest_evaluation is not None:
            self._progress.evaluated(self._latest_evaluation, best[0])
        self._mean_rewards.extend(state.get("mean_rewards", ()))

    def _smooth(self, values: Mapping[str, float]) -> None:
        reward = values.get("Train/mean_reward", math.nan)
        if math.isfinite(reward):
            self._mean_rewards.append(reward)

    def _note_summary(self, record: Record) -> None:
        if self._summary is None:
            return
        values = record.values
        self._summary.note(training_wall_time_sec=self._trained())
        note_telemetry(self._summary, self._logger.stats)
        if INVALID_ROWS in values:
            self._summary.note(invalid_rows=int(values[INVALID_ROWS]))
        if TOTAL_FPS in values:
            self._summary.note(final_env_steps_per_sec=values[TOTAL_FPS])
        if "Train/mean_reward" in values:
            self._summary.note(
                final_mean_reward=values["Train/mean_reward"],
                mean_episode_length=values.get("Train/mean_episode_length"),
            )
        wall = values.get(ITERATION_TIME)
        if wall:
            self._summary.note(
                final_cycle_wall_ms=wall * 1e3,
                final_inference_ms=values.get("Perf/learner_inference_ms"),
                final_inference_h2d_ms=values.get("Perf/learner_inference_h2d_ms"),
                final_inference_forward_ms=values.get("Perf/learner_inference_forward_ms"),
                final_inference_d2h_ms=values.get("Perf/learner_inference_d2h_ms"),
                final_learner_replay_rows_per_sec=record.learner_rows_per_second,
            )

    def _note_instability(self, collected: CollectorReport) -> None:
        """Say by name what worlds were left out for, or go on in spite of."""
        totals = collected.totals
        found = totals.instability
        news = {name: n for name, n in found.items() if n > self._instability.get(name, 0)}
        if news and totals.invalid_rows:
            log.warning(
                "worlds diverged and were reset; their rows are not trained on",
                counts=news,
                rows_left_out=totals.invalid_rows,
                first=str(totals.first_unsound),
            )
        elif news:
            log.warning("the simulator warned of worlds, and went on with them", counts=news)
        self._instability = dict(found)


def device_metrics(replay: ReplayRing) -> dict[str, float]:
    """The replay ring's copies to a device, where it makes any."""
    submitted = replay.h2d_submit_ms
    return {} if submitted is None else {H2D_SUBMIT: submitted}


def ingress_metrics(counters: IngressCounters) -> dict[str, float]:
    """The replay ingress by canonical tag; the wait is cumulative."""
    return {
        "Train/replay_ingress_depth": float(counters.ingress_depth),
        "Train/replay_ingress_occupancy": float(counters.occupancy),
        "Train/replay_ingress_high_water": float(counters.high_water_occupancy),
        "Train/replay_ingress_backpressure_wait_ms": counters.backpressure_wait_s * 1e3,
        "Train/replay_ingress_dropped_batches": float(counters.dropped_batches),
    }


def note_telemetry(summary: SummaryWriter, counts: LoggerStats) -> None:
    """Tell the summary how telemetry went, and where the run's page is."""
    for backend in counts.backends:
        url = backend.details.get(RUN_URL)
        if url and backend.name == WANDB_LOGGER:
            summary.note(wandb_run_url=url[:1024])
    summary.note(telemetry=run_telemetry(counts))


def run_telemetry(counts: LoggerStats) -> RunTelemetry:
    """How telemetry went, as the run's summary holds it."""
    return RunTelemetry(
        reports=counts.reports,
        nonfinite_values=counts.nonfinite_values,
        overfull_timelines=counts.overfull_timelines,
        backends=tuple(
            BackendTelemetry(
                name=backend.name[:63],
                written=backend.written,
                lost=backend.lost,
                error=backend.error,
                details={key[:253]: text[:1024] for key, text in backend.details.items()},
            )
            for backend in counts.backends
        ),
    )


def _collected(collected: CollectorReport) -> tuple[Part, ...]:
    """What the collector's board tells, by its owners."""
    return (
        {Owner.COLLECTOR: collected.metrics},
        {Owner.ENVIRONMENT: collected.log},
    )
