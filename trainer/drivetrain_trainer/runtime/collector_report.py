"""The collector's figures: running totals on the board, means of an interval for a reader.

The board carries totals since the start, so that nothing is lost however seldom it is read:
the reader subtracts what it saw before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from drivetrain_api.metrics import MetricSchema
from drivetrain_trainer.envs.soundness import UnsoundElement
from drivetrain_trainer.runtime.inference_flight import InferenceFlight
from drivetrain_trainer.runtime.row_guard import Sighting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_trainer.runtime.metrics_board import BoardReport

INVALID_ROWS: Final = "Train/invalid_rows"
_FLIGHT: Final = "Perf/collector_inference_"
_UNSOUND: Final = "unsound_"
_PLACE_BYTES: Final = 96
"""Of a place's name that the board has room for."""


class CollectorPhase(StrEnum):
    """Exclusive phases of a collector's tick; the values are their tags."""

    INFERENCE_REQUEST = "Perf/collector_inference_request_ms"
    LEARNER_ACTION_WAIT = "Perf/collector_learner_action_wait_ms"
    ENV_STEP = "Perf/collector_env_step_ms"
    TRANSITION_EXTRACT = "Perf/collector_transition_extract_ms"
    REPLAY_WRITE = "Perf/collector_replay_write_ms"
    METRICS_PUBLISH = "Perf/collector_metrics_publish_ms"


@dataclass
class CollectorTotals:
    """What the collector counts, since it started."""

    ticks: int = 0
    env_steps: int = 0
    episodes: int = 0
    timeouts: int = 0
    invalid_rows: int = 0
    seconds: float = 0.0
    """Wall time since the first request."""
    sums: dict[str, float] = field(default_factory=dict)
    """By tag, over every tick that had a value."""
    counts: dict[str, int] = field(default_factory=dict)
    """Ticks that had a value, by tag."""
    log_sums: dict[str, float] = field(default_factory=dict)
    """What environments logged, by tag, each value times the environments it is of."""
    log_weights: dict[str, int] = field(default_factory=dict)
    """Those environments, by tag, over every tick that had a value."""
    log_nonfinite: dict[str, int] = field(default_factory=dict)
    """Ticks whose value was NaN or infinite, by tag: no sum would be a number again after one."""
    gauges: dict[str, float] = field(default_factory=dict)
    """Latest values, by tag."""
    instability: dict[str, int] = field(default_factory=dict)
    """Worlds that diverged, by reason."""
    first_unsound: Sighting | None = None
    """The first number that could not be trained on."""

    def add(self, tag: str, value: float) -> None:
        """A tick's value of a metric."""
        self.sums[tag] = self.sums.get(tag, 0.0) + value
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def add_log(self, tag: str, value: float, num_envs: int) -> None:
        """What `num_envs` environments logged in a tick; a mean over them.

        A count of them is given with `num_envs` 1.
        """
        if not math.isfinite(value):
            self.log_nonfinite[tag] = self.log_nonfinite.get(tag, 0) + 1
            return
        self.log_sums[tag] = self.log_sums.get(tag, 0.0) + value * num_envs
        self.log_weights[tag] = self.log_weights.get(tag, 0) + num_envs

    def encode(self) -> dict[str, float]:
        """Names and values for the board."""
        return {
            "ticks": self.ticks,
            "env_steps": self.env_steps,
            "episodes": self.episodes,
            "timeouts": self.timeouts,
            "invalid_rows": self.invalid_rows,
            "seconds": self.seconds,
            **{f"sum:{tag}": value for tag, value in self.sums.items()},
            **{f"count:{tag}": count for tag, count in self.counts.items()},
            **{f"log_sum:{tag}": value for tag, value in self.log_sums.items()},
            **{f"log_weight:{tag}": weight for tag, weight in self.log_weights.items()},
            **{f"log_bad:{tag}": ticks for tag, ticks in self.log_nonfinite.items()},
            **{f"gauge:{tag}": value for tag, value in self.gauges.items()},
            **{f"instability:{name}": count for name, count in self.instability.items()},
            **_encode_sighting(self.first_unsound),
        }

    @classmethod
    def decode(cls, values: Mapping[str, float]) -> CollectorTotals:
        """What `encode` was given."""

        def group(prefix: str) -> dict[str, float]:
            return {
                name.removeprefix(prefix): value
                for name, value in values.items()
                if name.startswith(prefix)
            }

        return cls(
            ticks=int(values["ticks"]),
            env_steps=int(values["env_steps"]),
            episodes=int(values["episodes"]),
            timeouts=int(values["timeouts"]),
            invalid_rows=int(values["invalid_rows"]),
            seconds=values["seconds"],
            sums=group("sum:"),
            counts={tag: int(count) for tag, count in group("count:").items()},
            log_sums=group("log_sum:"),
            log_weights={tag: int(weight) for tag, weight in group("log_weight:").items()},
            log_nonfinite={tag: int(ticks) for tag, ticks in group("log_bad:").items()},
            gauges=group("gauge:"),
            instability={name: int(count) for name, count in group("instability:").items()},
            first_unsound=_decode_sighting(values),
        )


def _encode_sighting(sighting: Sighting | None) -> dict[str, float]:
    """The board holds numbers under names: so the place is part of the names."""
    if sighting is None:
        return {}
    element = sighting.element
    place = element.place.encode()[:_PLACE_BYTES].decode(errors="ignore")
    value = {} if element.value is None else {f"{_UNSOUND}value:{place}": element.value}
    return {
        f"{_UNSOUND}tick:{place}": sighting.tick,
        f"{_UNSOUND}env:{place}": element.env,
        **value,
    }


def _decode_sighting(values: Mapping[str, float]) -> Sighting | None:
    prefix = f"{_UNSOUND}tick:"
    name = next((name for name in values if name.startswith(prefix)), None)
    if name is None:
        return None
    place = name.removeprefix(prefix)
    env, value = int(values[f"{_UNSOUND}env:{place}"]), values.get(f"{_UNSOUND}value:{place}")
    return Sighting(int(values[name]), UnsoundElement(env, place, value))


@dataclass(frozen=True)
class CollectorReport:
    """Figures of the ticks since the report before."""

    tick: int
    """The tick that comes next."""
    ticks: int
    """Ticks that the report covers."""
    seconds: float
    """Wall time that it covers."""
    env_steps: int
    """Environment steps that it covers."""
    metrics: Mapping[str, float]
    """The collector's own by canonical tag, to be submitted as they are: means over the ticks
    covered, the latest 100 episodes' means, the flight gauges."""
    log: Mapping[str, float]
    """What the environments logged, by tag of a family: means over ticks and environments, and
    sums over both for families that count."""
    totals: CollectorTotals
    """Since the collector started."""

    @property
    def steps_per_second(self) -> float:
        """Environment steps a second over the ticks covered."""
        return self.env_steps / self.seconds if self.seconds > 0 else 0.0

    @property
    def flight(self) -> InferenceFlight:
        """Requests under way at the report, maxima since the report before it."""
        gauges = self.totals.gauges

        def gauge(name: str) -> int:
            return int(gauges.get(_FLIGHT + name, 0.0))

        return InferenceFlight(
            queue_depth=gauge("queue_depth"),
            action_backlog=gauge("action_backlog"),
            max_action_backlog=gauge("max_action_backlog"),
            in_flight=gauge("in_flight"),
            max_in_flight=gauge("max_in_flight"),
            publication_lag=gauge("publication_lag"),
            max_publication_lag=gauge("max_publication_lag"),
        )


def flight_gauges(flight: InferenceFlight) -> dict[str, float]:
    """The flight by canonical tag."""
    return {
        f"{_FLIGHT}queue_depth": flight.queue_depth,
        f"{_FLIGHT}action_backlog": flight.action_backlog,
        f"{_FLIGHT}max_action_backlog": flight.max_action_backlog,
        f"{_FLIGHT}in_flight": flight.in_flight,
        f"{_FLIGHT}max_in_flight": flight.max_in_flight,
        f"{_FLIGHT}publication_lag": flight.publication_lag,
        f"{_FLIGHT}max_publication_lag": flight.max_publication_lag,
    }


class ReportReader:
    """Turns the board's totals into reports."""

    def __init__(self, schema: MetricSchema | None = None) -> None:
        """Read reports of environments whose log is of the schema's families."""
        self._before = CollectorTotals()
        self._schema = schema or MetricSchema()

    @property
    def totals(self) -> CollectorTotals:
        """Of the latest report that was read."""
        return self._before

    def read(self, board: BoardReport) -> CollectorReport:
        """The report of what happened since the last one.

        Raises:
            UnknownMetricError: environments logged a tag of no family.
        """
        totals, before = CollectorTotals.decode(board.values), self._before
        self._before = totals
        metrics = dict(totals.gauges)
        for tag, total in totals.sums.items():
            count = totals.counts[tag] - before.counts.get(tag, 0)
            if count:
                metrics[tag] = (total - before.sums.get(tag, 0.0)) / count
        return CollectorReport(
            tick=board.tick,
            ticks=totals.ticks - before.ticks,
            seconds=totals.seconds - before.seconds,
            env_steps=totals.env_steps - before.env_steps,
            metrics=metrics,
            log=self._log(totals, before),
            totals=totals,
        )

    def _log(self, totals: CollectorTotals, before: CollectorTotals) -> dict[str, float]:
        found = {}
        for tag, total in totals.log_sums.items():
            weight = totals.log_weights[tag] - before.log_weights.get(tag, 0)
            if weight:
                gained = total - before.log_sums.get(tag, 0.0)
                counted = self._schema.family(tag).counted
                found[tag] = gained if counted else gained / weight
        for tag, ticks in totals.log_nonfinite.items():
            if ticks > before.log_nonfinite.get(tag, 0):
                self._schema.family(tag)
                found[tag] = math.nan
        return found
