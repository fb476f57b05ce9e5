from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.metrics import Family, MetricSchema, Owner, Unit, UnknownMetricError
from drivetrain_trainer.telemetry.validation import (
    DuplicateMetricError,
    LoggerOwnedMetricError,
    MetricValueError,
    ReportValidator,
)


@pytest.fixture
def validator() -> ReportValidator:
    return ReportValidator(MetricSchema(), AlgoName.SAC)


def test_parts_of_several_owners_become_one_report(validator: ReportValidator) -> None:
    merged = validator.merge(
        [{"Loss/actor": 1}, {"Train/mean_reward": 2.5}, {"reward/forward": np.float64(0.5)}]
    )
    assert merged == {"Loss/actor": 1.0, "Train/mean_reward": 2.5, "reward/forward": 0.5}
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
            [{"Loss/actor": 1.0}, {"Loss/critic": 1.0, "Loss/actor": 1.0}],
            DuplicateMetricError,
            r"'Loss/actor' is submitted twice",
        ),
        ([{"Train/iteration": 1}], LoggerOwnedMetricError, r"'Train/iteration' is written by"),
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
        validator.merge(parts)


def test_an_environment_may_declare_a_family_of_its_own() -> None:
    schema = MetricSchema().declaring([Family("gait/", Unit.NONE, Owner.ENVIRONMENT)])
    merged = ReportValidator(schema, AlgoName.SAC).merge([{"gait/duty": 0.5}])
    assert merged == {"gait/duty": 0.5}


def test_not_a_number_is_a_number(validator: ReportValidator) -> None:
    merged = validator.merge([{"Loss/actor": float("nan"), "Loss/critic": float("inf")}])
    assert str(merged) == "{'Loss/actor': nan, 'Loss/critic': inf}"
