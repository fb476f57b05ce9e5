from __future__ import annotations

import dataclasses
import math

import pytest

from drivetrain_api.metrics import (
    METRICS,
    Family,
    MetricSchema,
    Owner,
    Unit,
    UnknownMetricError,
)
from drivetrain_trainer.envs.soundness import UnsoundElement
from drivetrain_trainer.runtime.collector_report import (
    CollectorPhase,
    CollectorTotals,
    ReportReader,
    flight_gauges,
)
from drivetrain_trainer.runtime.inference_flight import InferenceFlight
from drivetrain_trainer.runtime.metrics_board import NAME_BYTES, BoardReport
from drivetrain_trainer.runtime.phase_clock import ENV_TIMING
from drivetrain_trainer.runtime.row_guard import Sighting

FLIGHT = InferenceFlight(1, 2, 3, 4, 5, 6, 7)


def totals() -> CollectorTotals:
    made = CollectorTotals(
        ticks=4, env_steps=40, episodes=2, timeouts=1, invalid_rows=3, seconds=2.0
    )
    made.instability = {"BADQACC": 3}
    made.gauges = {"Train/mean_reward": 9.5, **flight_gauges(FLIGHT)}
    for value in (1.0, 3.0):
        made.add("Perf/collector_env_step_ms", value)
        made.add_log("reward/alive", value, 10)
        made.add_log("Episode_Termination/fell", value, 1)
    return made


def test_totals_come_back_from_the_board() -> None:
    assert CollectorTotals.decode(totals().encode()) == totals()


@pytest.mark.parametrize("value", [None, -math.inf, 1e12])
@pytest.mark.parametrize("place", ["reward term 'alive'", "reward term '" + "\u00e4:" * 100])
def test_the_first_unsound_element_comes_back_from_the_board(
    place: str, value: float | None
) -> None:
    made = totals()
    made.first_unsound = Sighting(123, UnsoundElement(7, place, value))
    encoded = made.encode()
    assert all(len(name.encode()) <= NAME_BYTES for name in encoded)
    found = CollectorTotals.decode(encoded).first_unsound
    assert found is not None
    assert (found.tick, found.element.env, found.element.value) == (123, 7, value)
    assert place.startswith(found.element.place)
    assert len(found.element.place) >= min(len(place), 60)


def test_a_report_covers_what_happened_since_the_last_one() -> None:
    reader, running = ReportReader(), totals()
    first = reader.read(BoardReport(4, running.encode()))
    assert (first.tick, first.ticks, first.env_steps, first.seconds) == (4, 4, 40, 2.0)
    assert first.steps_per_second == 20.0
    assert first.metrics["Perf/collector_env_step_ms"] == 2.0
    assert first.log == {"reward/alive": 2.0, "Episode_Termination/fell": 4.0}
    assert first.flight == FLIGHT
    running.ticks, running.env_steps, running.seconds = 6, 60, 2.5
    running.add_log("reward/alive", 8.0, 30)  # groups of unlike size
    running.add_log("reward/alive", 4.0, 10)
    running.add_log("Episode_Termination/fell", 1.0, 1)
    second = reader.read(BoardReport(6, running.encode()))
    assert (second.ticks, second.env_steps, second.steps_per_second) == (2, 20, 40.0)
    assert second.log == {"reward/alive": 7.0, "Episode_Termination/fell": 1.0}
    third = reader.read(BoardReport(6, running.encode()))
    assert third.log == {}
    assert "Perf/collector_env_step_ms" not in third.metrics
    assert third.metrics["Train/mean_reward"] == 9.5
    assert third.steps_per_second == 0.0
    assert third.totals.invalid_rows == 3


def test_a_log_value_that_is_no_number_is_told_once() -> None:
    reader, running = ReportReader(), totals()
    reader.read(BoardReport(4, running.encode()))
    running.add_log("reward/alive", math.nan, 10)
    running.add_log("reward/alive", 5.0, 10)
    assert CollectorTotals.decode(running.encode()) == running
    assert math.isnan(reader.read(BoardReport(6, running.encode())).log["reward/alive"])
    running.add_log("reward/alive", 7.0, 10)
    assert reader.read(BoardReport(8, running.encode())).log == {"reward/alive": 7.0}


def test_a_tag_that_was_not_declared_is_found_out() -> None:
    running = totals()
    running.add_log("gait/duty", 0.5, 10)
    with pytest.raises(UnknownMetricError, match="'gait/duty' is of no family"):
        ReportReader().read(BoardReport(4, running.encode()))
    own = MetricSchema().declaring([Family("gait/", Unit.FRACTION, Owner.ENVIRONMENT)])
    assert ReportReader(own).read(BoardReport(4, running.encode())).log["gait/duty"] == 0.5


@pytest.mark.parametrize(
    "tag",
    [
        *CollectorPhase,
        *ENV_TIMING.values(),
        *flight_gauges(FLIGHT),
        "Train/mean_reward",
        "Train/mean_episode_length",
        "Episode/timeout_rate",
    ],
)
def test_every_tag_is_one_of_the_schema_and_the_collectors(tag: str) -> None:
    assert METRICS[tag].owner.value == "collector"


def test_families_of_environments_are_in_the_schema() -> None:
    for tag in ("reward/alive", "Episode_Termination/fell"):
        assert MetricSchema().lookup(tag).owner.value == "environment"


def test_the_flight_has_a_tag_for_every_figure() -> None:
    names = {field.name for field in dataclasses.fields(InferenceFlight)}
    assert {tag.removeprefix("Perf/collector_inference_") for tag in flight_gauges(FLIGHT)} == names
