"""The rows of the learner's and the collector's timelines; the two are never added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_api.metrics import METRICS
from drivetrain_trainer.telemetry import timeline

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class TimingRow:
    """A phase: milliseconds, and its share of its own clock where it has one."""

    label: str
    milliseconds: float
    share: float | None = None
    indented: bool = False
    """A part of the row above it, or of one further up: in no sum."""
    total: bool = False
    violation: bool = False
    """Phases that exclude one another take longer than what they are phases of."""


OTHER = "Other"
CYCLE = "Cycle"
ACCOUNTED = "Accounted > Wall"
"""Labels of rows that are derived for the terminal alone."""


def learner_rows(means: Mapping[str, float], algo: str | None = None) -> tuple[TimingRow, ...]:
    """The learner's exclusive phases, what they leave over, and the iteration's wall time.

    Every share is of Iter Wall; without a measured Iter Wall there are none, and no Other.
    Phases that add up to more than Iter Wall break the timeline's contract: Other is zero then,
    and a row of its own says what they add up to.
    """
    wall = timeline.in_milliseconds(timeline.ITERATION_TIME, means)
    rows = [
        TimingRow(METRICS[tag].label, spent, _share(spent, wall))
        for tag in timeline.learner_phases(algo)
        if (spent := timeline.in_milliseconds(tag, means)) is not None
    ]
    if wall is None:
        return tuple(rows)
    accounted = timeline.accounted_ms(means, algo)
    other = max(wall - accounted, 0.0)
    rows.append(TimingRow(OTHER, other, _share(other, wall)))
    if accounted > wall * (1 + timeline.CLOCK_TOLERANCE):
        rows.append(TimingRow(ACCOUNTED, accounted, _share(accounted, wall), violation=True))
    label = METRICS[timeline.ITERATION_TIME].label
    rows.append(TimingRow(label, wall, _share(wall, wall), total=True))
    return tuple(rows)


def collector_rows(means: Mapping[str, float], algo: str | None = None) -> tuple[TimingRow, ...]:
    """The collector's phases on its own clock; none where the learner's thread collects.

    A collector that owns its policy (APPO) reports means a step and a whole rollout, which
    are no breakdown of one another: milliseconds alone. Otherwise shares are of the cycle.
    """
    if algo in timeline.SYNCHRONOUS:
        return ()
    if timeline.ROLLOUT_PHASES[0] in means:
        return _rollout_rows(means)
    cycle = sum(means.get(tag, 0.0) for tag in timeline.COLLECTOR_CYCLE)
    rows: list[TimingRow] = []
    for tag in timeline.COLLECTOR_CYCLE:
        rows += _collector_row(tag, means, cycle, indented=False)
        if tag == timeline.ENV_STEP:
            for detail in timeline.ENV_STEP_DETAILS:
                rows += _collector_row(detail, means, cycle, indented=True)
    if rows:
        rows.append(TimingRow(CYCLE, cycle, _share(cycle, cycle), total=True))
    return tuple(rows)


def _rollout_rows(means: Mapping[str, float]) -> tuple[TimingRow, ...]:
    return tuple(
        TimingRow(METRICS[tag].label, spent)
        for tag in timeline.ROLLOUT_PHASES
        if (spent := timeline.in_milliseconds(tag, means)) is not None
    )


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
