"""What the panel says, as plain data: everything derived for display is derived here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_api.metrics import FAMILIES, METRICS, Metric, Unit
from drivetrain_trainer.telemetry import timeline
from drivetrain_trainer.telemetry.terminal import figures
from drivetrain_trainer.telemetry.terminal.timings import collector_rows, learner_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_trainer.telemetry.facts import EvaluationFigures, SystemFacts
    from drivetrain_trainer.telemetry.terminal.timings import TimingRow

_REWARD = "reward/"
_TERMINATION = "Episode_Termination/"
_MEAN_REWARD = "Train/mean_reward"
_EPISODE_LENGTH = "Train/mean_episode_length"
_TIMEOUT_RATE = "Episode/timeout_rate"
_FLIGHT = "Perf/collector_inference_"
_TRAINING = ("Train/", "Perf/dp_")
_TRANSPORT = ("Train/replay_ingress_", "Train/ring_", "Train/rollouts_", _FLIGHT)
_GAUGES = frozenset(
    {
        Unit.SLOTS,
        Unit.BATCHES,
        Unit.ROWS,
        Unit.ROLLOUTS,
        Unit.REQUESTS,
        Unit.TICKS,
        Unit.CALLS,
    }
)
STEPS = "steps"
ITERATIONS = "iterations"
"""What the progress of a run is counted in."""
PEAKED = (_REWARD, _MEAN_REWARD, _EPISODE_LENGTH)
"""Prefixes of tags whose highest value is kept."""
_FAMILY_PREFIXES = tuple(family.prefix for family in FAMILIES)
_ELSEWHERE = frozenset(
    {
        "Train/iteration",
        _MEAN_REWARD,
        _EPISODE_LENGTH,
        *timeline.COLLECTOR_CYCLE,
        *(tag for tag in METRICS if tag.startswith(f"{_FLIGHT}max_")),
    }
)
"""Tags that a group's prefix matches, but that stand elsewhere or, as the greatest numbers in
flight since the last report, are of use in the backend alone."""


def _group(prefixes: tuple[str, ...], but: tuple[str, ...] = ()) -> tuple[str, ...]:
    return tuple(
        tag
        for tag in METRICS
        if tag not in _ELSEWHERE and tag.startswith(prefixes) and not tag.startswith(but)
    )


_METRICS = _group(("Loss/", "Policy/"))
_DIAGNOSTICS = _group(_TRAINING, but=_TRANSPORT)
_GAUGED = _group(_TRANSPORT)


@dataclass(frozen=True)
class Snapshot:
    """Everything the panel is made from, at one moment."""

    facts: SystemFacts
    means: Mapping[str, float]
    """Tag -> mean over the window, or its last known value."""
    samples: int = 0
    """Rank-reduced reports in the window."""
    peaks: Mapping[str, float] | None = None
    """Reward tag -> highest unsmoothed value so far."""
    env_steps: int = 0
    iteration: int = 0
    elapsed_s: float = 0.0
    """Seconds since this process began to log."""
    pace: float | None = None
    """Progress a second over the last minute, in the unit of the target."""
    rows_per_second: float | None = None
    buffer_rows: int | None = None
    evaluation: EvaluationFigures | None = None


@dataclass(frozen=True)
class MetricRow:
    """A label and its formatted value; diagnostics are indented below the losses."""

    label: str
    text: str
    indented: bool = False


@dataclass(frozen=True)
class RewardRow:
    """A reward or episode figure with the highest value it ever had."""

    label: str
    value: float
    peak: float | None = None
    indented: bool = False


@dataclass(frozen=True)
class TermGroup:
    """Members of a family, of which a low terminal lists the first and counts the others."""

    title: str
    rows: tuple[RewardRow, ...]


@dataclass(frozen=True)
class Progress:
    """How far the run is."""

    position: int
    target: int | None
    unit: str
    share: float | None
    eta_s: float | None


@dataclass(frozen=True)
class PanelModel:
    """The panel's content, free of widths and styles."""

    facts: SystemFacts
    samples: int
    env_steps: int
    iteration: int
    elapsed_s: float
    progress: Progress
    steps_per_second: float | None
    rows_per_second: float | None
    metrics: tuple[MetricRow, ...]
    """Losses and policy state."""
    diagnostics: tuple[MetricRow, ...]
    """Training diagnostics, indented."""
    transport: tuple[MetricRow, ...]
    """Gauges between collector and learner: ingress or rollout ring, inferences in flight."""
    rewards: tuple[RewardRow, ...]
    reward_terms: TermGroup
    other_terms: tuple[TermGroup, ...]
    """Terminations, and what else the environment reports."""
    evaluation: EvaluationFigures | None
    learner: tuple[TimingRow, ...]
    collector: tuple[TimingRow, ...]
    has_collector: bool
    """Whether a process of its own collects, beside the learner."""
    system: tuple[MetricRow, ...]


def build(snapshot: Snapshot) -> PanelModel:
    """The panel's content at one moment; pure."""
    means, algo = snapshot.means, snapshot.facts.algo
    return PanelModel(
        facts=snapshot.facts,
        samples=snapshot.samples,
        env_steps=snapshot.env_steps,
        iteration=snapshot.iteration,
        elapsed_s=snapshot.elapsed_s,
        progress=progress(snapshot),
        steps_per_second=means.get(timeline.TOTAL_FPS),
        rows_per_second=snapshot.rows_per_second,
        metrics=tuple(_metric_rows(means, _METRICS)),
        diagnostics=tuple(_metric_rows(means, _DIAGNOSTICS, indented=True)),
        transport=tuple(_metric_rows(means, _GAUGED, indented=True)),
        rewards=_rewards(snapshot),
        reward_terms=TermGroup("Reward terms", _terms(snapshot, _REWARD)),
        other_terms=_other_terms(snapshot),
        evaluation=snapshot.evaluation,
        learner=learner_rows(means, algo),
        collector=collector_rows(means, algo),
        has_collector=algo not in timeline.SYNCHRONOUS,
        system=_system(snapshot),
    )


def progress(snapshot: Snapshot) -> Progress:
    """Position, target and remaining time, by environment steps or by iterations."""
    facts = snapshot.facts
    target = facts.target_env_steps
    position, unit = snapshot.env_steps, STEPS
    if target is None and facts.target_iterations is not None:
        target = facts.target_iterations
        position, unit = snapshot.iteration, ITERATIONS
    if target is None:
        return Progress(position, None, unit, None, None)
    left = max(target - position, 0)
    eta = 0.0 if left == 0 else left / snapshot.pace if snapshot.pace else None
    return Progress(position, target, unit, min(position / target, 1.0), eta)


def _metric_rows(
    means: Mapping[str, float], tags: tuple[str, ...], *, indented: bool = False
) -> list[MetricRow]:
    return [
        MetricRow(METRICS[tag].label, _text(METRICS[tag], means[tag]), indented)
        for tag in tags
        if tag in means
    ]


def _text(metric: Metric, number: float) -> str:
    if metric.unit is Unit.MILLISECONDS:
        return f"{figures.milliseconds(number)} ms"
    if metric.unit in _GAUGES:
        return figures.gauge(number)
    return figures.value(number)


def _rewards(snapshot: Snapshot) -> tuple[RewardRow, ...]:
    return tuple(
        RewardRow(METRICS[tag].label, snapshot.means[tag], _peak(snapshot, tag))
        for tag in (_MEAN_REWARD, _EPISODE_LENGTH)
        if tag in snapshot.means
    )


def _other_terms(snapshot: Snapshot) -> tuple[TermGroup, ...]:
    groups = (
        TermGroup("Terminations", _terms(snapshot, _TERMINATION)),
        TermGroup("Environment", _terms(snapshot, "", but=_FAMILY_PREFIXES)),
    )
    return tuple(group for group in groups if group.rows)


def _terms(snapshot: Snapshot, prefix: str, but: tuple[str, ...] = ()) -> tuple[RewardRow, ...]:
    """Members of a family; those of the environment's own families keep their whole tag."""
    return tuple(
        RewardRow(tag.removeprefix(prefix), value, _peak(snapshot, tag), indented=True)
        for tag, value in sorted(snapshot.means.items())
        if tag not in METRICS and tag.startswith(prefix) and not tag.startswith(but)
    )


def _peak(snapshot: Snapshot, tag: str) -> float | None:
    return None if snapshot.peaks is None else snapshot.peaks.get(tag)


def _system(snapshot: Snapshot) -> tuple[MetricRow, ...]:
    facts = snapshot.facts
    rows = []
    if facts.buffer_capacity is not None:
        filled = snapshot.buffer_rows or 0
        text = f"{figures.compact(filled)} / {figures.compact(facts.buffer_capacity)}"
        rows.append(MetricRow("Buffer" if facts.ranks == 1 else "Buffer / rank", text))
    timeouts = snapshot.means.get(_TIMEOUT_RATE)
    text = "-" if timeouts is None else figures.percent(timeouts)
    rows.append(MetricRow(METRICS[_TIMEOUT_RATE].label, text))
    envs = figures.count(facts.num_envs)
    rows.append(MetricRow("Envs", envs if facts.ranks == 1 else f"{envs} x {facts.ranks} ranks"))
    rows.append(MetricRow("Batch / rank", figures.count(facts.batch_per_rank)))
    rows.append(MetricRow("CUDA MPS", facts.mps.value))
    return tuple(rows)
