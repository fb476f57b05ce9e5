"""When a run is evaluated, and where that is left to the evaluation after training."""

from __future__ import annotations

import math
from typing import Any

import pytest
from torch import nn

from drivetrain_api.training import EvaluatorConfig
from drivetrain_trainer.training.evaluation import EvaluationSchedule
from drivetrain_trainer.training.ranks import Ranks


def schedule(config: dict[str, Any], *, stage_follows: bool = False, **more: Any) -> Any:
    options: dict[str, Any] = {"start_env_steps": 0, "best": None, **more}
    return EvaluationSchedule(
        EvaluatorConfig.model_validate(config),
        evaluator=None,
        policy=nn.Identity(),
        ranks=Ranks(),
        target_env_steps=100,
        announce=lambda *_: None,
        stage_follows=stage_follows,
        **options,
    )


@pytest.mark.parametrize(
    ("config", "stage_follows", "due"),
    [
        ({}, False, []),
        ({"eval_before_train": True}, False, [0, 30, 60, 90, 100]),
        ({"interval": 30}, False, [30, 60, 90, 100]),
        ({"interval": 50}, False, [60, 90, 100]),
        ({"interval": 50}, True, [60, 90]),
        ({"interval": 100}, True, []),
    ],
    ids=str,
)
def test_where_it_is_due(config: dict[str, Any], *, stage_follows: bool, due: list[int]) -> None:
    planned = schedule(config, stage_follows=stage_follows)
    assert [step for step in (0, 30, 60, 90, 100) if planned.due(step)] == due


def test_a_continuation_evaluates_from_where_it_begins() -> None:
    planned = schedule({"interval": 30}, stage_follows=True)
    planned.retarget(100, 160)
    assert [step for step in (100, 110, 130, 150, 160) if planned.due(step)] == [130, 150]


@pytest.mark.parametrize(
    ("best", "mean", "better"), [(None, -5.0, True), (3.0, 3.0, False), (3.0, 3.5, True)]
)
def test_the_best_is_of_all_evaluations(best: float | None, mean: float, *, better: bool) -> None:
    planned = schedule({}, best=best)
    assert planned.take(mean) is better
    assert planned.best == max(mean, -math.inf if best is None else best)
