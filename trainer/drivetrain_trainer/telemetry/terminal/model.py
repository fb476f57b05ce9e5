"""What the panel says, as plain data: everything derived for display is derived here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_api.metrics import METRICS, Metric, Unit
from drivetrain_trainer.telemetry import timeline
from drivetrain_trainer.telemetry.terminal import figures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_trainer.telemetry.facts import EvaluationFigures, SystemFacts

MAX_TERMS = 16
"""Reward or termination terms that are listed one by one."""

_REWARD = "reward/"
_TERMINATION = "Episode_Termination/"
_MEAN_REWARD = "Train/mean_reward"
_EPISODE_LENGTH = "Train/mean_episode_length"
_TIMEOUT_RATE = "Episode/timeout_rate"
_FLIGHT = "Perf/collector_inference_"
_GAUGES = frozenset(
    {Unit.SLOTS, Unit.BATCHES, Unit.ROLLOUTS, Unit.REQUESTS, Unit.TICKS, Unit.CALLS}
)
PEAKED = (_REWARD, _MEAN_REWARD, _EPISODE_LENGTH)
"""Prefixes of tags whose highest value is kept."""
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
class TimingRow:
    """A phase: milliseconds, and its share of its own clock where it has one."""

    label: str
    milliseconds: float
    share: float | None = None
    indented: bool = False
    total: bool = False


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
    iteration: int
    elapsed_s: float
    progress: Progress
    steps_per_second: float | None
    rows_per_second: float | None
    metrics: tuple[MetricRow, ...]
    """Losses and policy state."""
    diagnostics: tuple[MetricRow, ...]
    """Training diagnostics, indented; then gauges of ingress and inference flight."""
    rewards: tuple[RewardRow, ...]
    terms: tuple[RewardRow, ...]
    """Reward terms, then terminations."""
    hidden_terms: int
    """Terms beyond those listed."""
    evaluation: EvaluationFigures | None
    learner: tuple[TimingRow, ...]
    collector: tuple[TimingRow, ...]
    system: tuple[MetricRow, ...]


def build(snapshot: Snapshot) -> PanelModel:
    """The panel's content at one moment; pure."""
    means = snapshot.means
    reward_terms = _family(snapshot, _REWARD)
    terminations = _family(snapshot, _TERMINATION, "ended: ")
    return PanelModel(
        facts=snapshot.facts,
        samples=snapshot.samples,
        iteration=snapshot.iteration,
        elapsed_s=snapshot.elapsed_s,
        progress=progress(snapshot),
        steps_per_second=means.get(timeline.TOTAL_FPS),
        rows_per_second=snapshot.rows_per_second,
        metrics=tuple(_metric_rows(means, ("Loss/", "Policy/"), indented=False)),
        diagnostics=(*_metric_rows(means, ("Train/", "Perf/dp_", _FLIGHT), indented=True),),
        rewards=_rewards(snapshot),
        terms=(*reward_terms[:MAX_TERMS], *terminations[:MAX_TERMS]),
        hidden_terms=sum(max(len(x) - MAX_TERMS, 0) for x in (reward_terms, terminations)),
        evaluation=snapshot.evaluation,
        learner=learner_rows(means),
        collector=collector_rows(means),
        system=_system(snapshot),
    )


def progress(snapshot: Snapshot) -> Progress:
    """Position, target and remaining time, by environment steps or by iterations."""
    facts = snapshot.facts
    target = facts.target_env_steps
    position, unit = snapshot.env_steps, "steps"
    if target is None and facts.target_iterations is not None:
        target = facts.target_iterations
        position, unit = snapshot.iteration, "iterations"
    if target is None:
        return Progress(position, None, unit, None, None)
    left = max(target - position, 0)
    eta = 0.0 if left == 0 else left / snapshot.pace if snapshot.pace else None
    return Progress(position, target, unit, min(position / target, 1.0), eta)


def learner_rows(means: Mapping[str, float]) -> tuple[TimingRow, ...]:
    """The learner's exclusive phases, what they leave over, and the iteration's wall time.

    Every share is of Iter Wall; without a measured Iter Wall there are none, and no Other.
    """
    wall = timeline.in_milliseconds(timeline.ITERATION_TIME, means)
    rows = [
        TimingRow(METRICS[tag].label, spent, _share(spent, wall))
        for tag in timeline.LEARNER_PHASES
        if (spent := timeline.in_milliseconds(tag, means)) is not None
    ]
    if wall is not None:
        other = max(wall - timeline.accounted_ms(means), 0.0)
        rows.append(TimingRow("Other", other, _share(other, wall)))
        label = METRICS[timeline.ITERATION_TIME].label
        rows.append(TimingRow(label, wall, _share(wall, wall), total=True))
    return tuple(rows)


def collector_rows(means: Mapping[str, float]) -> tuple[TimingRow, ...]:
    """The collector's phases on its own clock.

    A collector that owns its policy (APPO) reports means a step and a whole rollout, which
    are no breakdown of one another: milliseconds alone. Otherwise shares are of the cycle.
    """
    if timeline.ROLLOUT_PHASES[0] in means:
        return tuple(
            TimingRow(METRICS[tag].label, spent)
            for tag in timeline.ROLLOUT_PHASES
            if (spent := timeline.in_milliseconds(tag, means)) is not None
        )
    cycle = sum(means.get(tag, 0.0) for tag in timeline.COLLECTOR_CYCLE)
    rows: list[TimingRow] = []
    for tag in timeline.COLLECTOR_CYCLE:
        rows += _collector_row(tag, means, cycle, indented=False)
        if tag == timeline.ENV_STEP:
            for detail in timeline.ENV_STEP_DETAILS:
                rows += _collector_row(detail, means, cycle, indented=True)
    if rows:
        rows.append(TimingRow("Cycle", cycle, _share(cycle, cycle), total=True))
    return tuple(rows)


def _collector_row(
    tag: str, means: Mapping[str, float], cycle: float, *, indented: bool
) -> list[TimingRow]:
    spent = means.get(tag)
    if spent is None:
        return []
    if tag not in timeline.COLLECTOR_CORE and spent < timeline.MATERIAL_SHARE * cycle:
        return []
    return [TimingRow(METRICS[tag].label, spent, _share(spent, cycle), indented=indented)]


def _share(part: float, whole: float | None) -> float | None:
    return part / whole if whole else None


def _metric_rows(
    means: Mapping[str, float], prefixes: tuple[str, ...], *, indented: bool
) -> list[MetricRow]:
    return [
        MetricRow(metric.label, _text(metric, means[tag]), indented)
        for tag, metric in METRICS.items()
        if tag in means and tag not in _ELSEWHERE and tag.startswith(prefixes)
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


def _family(snapshot: Snapshot, prefix: str, before: str = "") -> list[RewardRow]:
    return [
        RewardRow(
            before + tag.removeprefix(prefix),
            snapshot.means[tag],
            _peak(snapshot, tag),
            indented=True,
        )
        for tag in sorted(snapshot.means)
        if tag.startswith(prefix)
    ]


def _peak(snapshot: Snapshot, tag: str) -> float | None:
    return None if snapshot.peaks is None else snapshot.peaks.get(tag)


def _system(snapshot: Snapshot) -> tuple[MetricRow, ...]:
    facts = snapshot.facts
    rows = []
    if facts.buffer_capacity is not None:
        filled = snapshot.buffer_rows or 0
        text = f"{figures.compact(filled)} / {figures.compact(facts.buffer_capacity)}"
        rows.append(MetricRow("Buffer", text))
    timeouts = snapshot.means.get(_TIMEOUT_RATE)
    rows.append(MetricRow("Timeouts", "-" if timeouts is None else figures.percent(timeouts)))
    envs = figures.count(facts.num_envs)
    rows.append(MetricRow("Envs", envs if facts.ranks == 1 else f"{envs} x {facts.ranks} ranks"))
    rows.append(MetricRow("Batch / rank", figures.count(facts.batch_per_rank)))
    rows.append(MetricRow("MPS", facts.mps.value))
    return tuple(rows)
