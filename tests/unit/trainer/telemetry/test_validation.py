from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.metrics import (
    EVERY_ALGORITHM,
    METRICS,
    Family,
    MetricSchema,
    Owner,
    Quantity,
    Unit,
    UnknownMetricError,
)
from drivetrain_trainer.telemetry.validation import (
    DuplicateMetricError,
    LoggerOwnedMetricError,
    MetricOwnerError,
    MetricUnitError,
    MetricValueError,
    Part,
    ReportValidator,
)


@pytest.fixture
def validator() -> ReportValidator:
    return ReportValidator(MetricSchema(), AlgoName.SAC)


def parts_of(*values: dict[str, Any]) -> list[Part]:
    return [{Owner.LEARNER: part} for part in values]


def test_parts_of_several_owners_become_one_report(validator: ReportValidator) -> None:
    merged = validator.merge(
        [
            {Owner.LEARNER: {"Loss/actor": 1}, Owner.COLLECTOR: {"Train/mean_reward": 2.5}},
            {Owner.ENVIRONMENT: {"reward/forward": np.float64(0.5)}},
            {Owner.TRACKER: {"timeperf/rollout": Quantity(0.25, Unit.SECONDS)}},
        ]
    )
    assert merged == {
        "Loss/actor": 1.0,
        "Train/mean_reward": 2.5,
        "reward/forward": 0.5,
        "timeperf/rollout": 0.25,
    }
    assert all(type(value) is float for value in merged.values())


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ([{"Loss/actr": 1.0}], UnknownMetricError, r"'Loss/actr': did you mean Loss/actor"),
        ([{"perf/steps_per_sec": 1.0}], UnknownMetricError, r"'perf/steps_per_sec'"),
        ([{"Episode_Reward/forward": 1.0}], UnknownMetricError, r"'Episode_Reward/forward'"),
        ([{"reward/mean": 1.0}], UnknownMetricError, r"'reward/mean' is reserved"),
        ([{"Train/rollouts_read": 1.0}], UnknownMetricError, r"belongs to appo, not to sac"),
        (
            [{"Perf/learner_replay_stage_ms": 1.0}],
            UnknownMetricError,
            r"belongs to appo, not to sac",
        ),
        (
            [{"Perf/learner_weight_publish_ms": 1.0}],
            UnknownMetricError,
            r"belongs to appo, not to sac",
        ),
        (
            [{"Loss/actor": 1.0}, {"Loss/critic": 1.0, "Loss/actor": 1.0}],
            DuplicateMetricError,
            r"'Loss/actor' is submitted twice",
        ),
        ([{"Train/iteration": 1}], LoggerOwnedMetricError, r"'Train/iteration' is written by"),
        (
            [{"Train/mean_reward": 1.0}],
            MetricOwnerError,
            r"'Train/mean_reward' is submitted by the collector, not by the learner",
        ),
        (
            [{"reward/forward": 1.0}],
            MetricOwnerError,
            r"'reward/forward' is submitted by the environment, not by the learner",
        ),
        (
            [{"Perf/learning_time": Quantity(5.0, Unit.MILLISECONDS)}],
            MetricUnitError,
            r"'Perf/learning_time' is in s; got 5.0 ms",
        ),
        ([{"Loss/actor": True}], MetricValueError, r"'Loss/actor' is True \(bool\)"),
        ([{"Loss/actor": "1"}], MetricValueError, r"'Loss/actor' is '1' \(str\)"),
        ([{"Loss/actor": None}], MetricValueError, r"'Loss/actor' is None"),
        ([{"Loss/actor": torch.tensor(1.0)}], MetricValueError, r"\.item\(\)"),
        ([{"Loss/actor": 1j}], MetricValueError, r"complex"),
    ],
)
def test_a_report_that_breaks_the_schema_is_refused(
    validator: ReportValidator, parts: list[dict[str, Any]], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        validator.merge(parts_of(*parts))


def test_a_tag_that_two_owners_claim_is_found_out(validator: ReportValidator) -> None:
    with pytest.raises(MetricOwnerError, match="submitted by the learner, not by the collector"):
        validator.merge(
            [{Owner.LEARNER: {"Loss/actor": 1.0}, Owner.COLLECTOR: {"Loss/actor": 1.0}}]
        )


@pytest.mark.parametrize("tag", sorted(METRICS))
def test_every_tag_is_taken_from_its_owner_in_its_unit_alone(tag: str) -> None:
    metric = METRICS[tag]
    algo = min(metric.algorithms)
    validator = ReportValidator(MetricSchema(), algo)
    others = [unit for unit in Unit if unit is not metric.unit]
    for owner in Owner:
        part = {owner: {tag: Quantity(2.0, metric.unit)}}
        if owner is metric.owner and owner is not Owner.LOGGER:
            assert validator.merge([part]) == {tag: 2.0}
            with pytest.raises(MetricUnitError, match=tag):
                validator.merge([{owner: {tag: Quantity(2.0, others[0])}}])
        else:
            with pytest.raises(MetricOwnerError, match=tag):
                validator.merge([part])
    for other in EVERY_ALGORITHM - metric.algorithms:
        with pytest.raises(UnknownMetricError, match=tag):
            ReportValidator(MetricSchema(), other).merge([{metric.owner: {tag: 2.0}}])


def test_an_environment_may_declare_a_family_of_its_own() -> None:
    schema = MetricSchema().declaring([Family("gait/", Unit.NONE, Owner.ENVIRONMENT)])
    merged = ReportValidator(schema, AlgoName.SAC).merge([{Owner.ENVIRONMENT: {"gait/duty": 0.5}}])
    assert merged == {"gait/duty": 0.5}


def test_not_a_number_is_a_number(validator: ReportValidator) -> None:
    merged = validator.merge(parts_of({"Loss/actor": float("nan"), "Loss/critic": float("inf")}))
    assert str(merged) == "{'Loss/actor': nan, 'Loss/critic': inf}"
