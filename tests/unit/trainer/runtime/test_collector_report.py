from __future__ import annotations

import dataclasses

import pytest

from drivetrain_api.metrics import METRICS, MetricSchema
from drivetrain_trainer.runtime.collector_loop import _ENV_TIMING
from drivetrain_trainer.runtime.collector_report import (
    CollectorPhase,
    CollectorTotals,
    ReportReader,
    flight_gauges,
)
from drivetrain_trainer.runtime.inference_ring import InferenceFlight
from drivetrain_trainer.runtime.metrics_board import BoardReport

FLIGHT = InferenceFlight(1, 2, 3, 4, 5, 6, 7)


def totals() -> CollectorTotals:
    made = CollectorTotals(
        ticks=4, env_steps=40, episodes=2, timeouts=1, invalid_rows=3, seconds=2.0
    )
    made.instability = {"BADQACC": 3}
    made.gauges = {"Train/mean_reward": 9.5, **flight_gauges(FLIGHT)}
    for value in (1.0, 3.0):
        made.add("reward/alive", value)
        made.add("Episode_Termination/fell", value)
    return made


def test_totals_come_back_from_the_board() -> None:
    assert CollectorTotals.decode(totals().encode()) == totals()


def test_a_report_covers_what_happened_since_the_last_one() -> None:
    reader, running = ReportReader(), totals()
    first = reader.read(BoardReport(4, running.encode()))
    assert (first.tick, first.ticks, first.env_steps, first.seconds) == (4, 4, 40, 2.0)
    assert first.steps_per_second == 20.0
    assert first.metrics["reward/alive"] == 2.0
    assert first.metrics["Episode_Termination/fell"] == 4.0
    assert first.flight == FLIGHT
    running.ticks, running.env_steps, running.seconds = 6, 60, 2.5
    running.add("reward/alive", 7.0)
    running.add("Episode_Termination/fell", 1.0)
    second = reader.read(BoardReport(6, running.encode()))
    assert (second.ticks, second.env_steps, second.steps_per_second) == (2, 20, 40.0)
    assert second.metrics["reward/alive"] == 7.0
    assert second.metrics["Episode_Termination/fell"] == 1.0
    third = reader.read(BoardReport(6, running.encode()))
    assert "reward/alive" not in third.metrics
    assert third.metrics["Train/mean_reward"] == 9.5
    assert third.steps_per_second == 0.0
    assert third.totals.invalid_rows == 3


@pytest.mark.parametrize(
    "tag",
    [
        *CollectorPhase,
        *_ENV_TIMING.values(),
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
