"""Shares of the two clocks, by name: what the terminal derives, derived again from the tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_api.metrics import METRICS
from drivetrain_trainer.telemetry.timeline import (
    COLLECTOR_CYCLE,
    ITERATION_TIME,
    in_milliseconds,
    learner_phases,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

OTHER = "Other"
"""What no named phase of the learner explains; derived, never a tag."""


@dataclass(frozen=True)
class Slice:
    """A part of a clock."""

    label: str
    """As the terminal calls it."""
    milliseconds: float
    share: float
    """Of the clock's whole, 1 being all of it."""


@dataclass(frozen=True)
class Learner:
    """One iteration of the learner's main thread."""

    wall_ms: float
    """Iter Wall."""
    accounted_ms: float
    """What the exclusive phases add up to; above `wall_ms` the contract is broken."""
    slices: tuple[Slice, ...]
    """The phases in their order, then Other = max(Iter Wall - accounted, 0)."""


@dataclass(frozen=True)
class Collector:
    """One tick of the collector, on its own clock."""

    cycle_ms: float
    """Sum of the exclusive phases."""
    slices: tuple[Slice, ...]
    """The phases in their order."""


def learner(values: Mapping[str, float], algo: str | None = None) -> Learner | None:
    """The learner's iteration; None where no complete one was measured."""
    wall = in_milliseconds(ITERATION_TIME, values)
    if not wall:
        return None
    phases = [(tag, in_milliseconds(tag, values)) for tag in learner_phases(algo)]
    slices = [
        Slice(METRICS[tag].label, spent, spent / wall) for tag, spent in phases if spent is not None
    ]
    accounted = sum(one.milliseconds for one in slices)
    other = max(wall - accounted, 0.0)
    return Learner(wall, accounted, (*slices, Slice(OTHER, other, other / wall)))


def collector(values: Mapping[str, float]) -> Collector | None:
    """The collector's cycle; None where the collector has none (it owns its policy)."""
    phases = [(tag, values[tag]) for tag in COLLECTOR_CYCLE if tag in values]
    cycle = sum(spent for _, spent in phases)
    if not cycle:
        return None
    return Collector(
        cycle,
        tuple(Slice(METRICS[tag].label, spent, spent / cycle) for tag, spent in phases),
    )
